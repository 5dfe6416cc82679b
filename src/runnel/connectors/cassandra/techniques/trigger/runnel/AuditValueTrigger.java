package runnel;

/** Keeps twins that hold the value last analysed. */
public class AuditValueTrigger extends AuditTrigger
{
    @Override
    protected Object twin(java.nio.ByteBuffer value, long time)
    {
        return value == null ? null : value.duplicate();
    }
}
