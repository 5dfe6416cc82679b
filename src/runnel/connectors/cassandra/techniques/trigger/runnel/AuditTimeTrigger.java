package runnel;

/** Keeps twins that hold the time of insertion. */
public class AuditTimeTrigger extends AuditTrigger
{
    @Override
    protected Object twin(java.nio.ByteBuffer value, long time)
    {
        return time;
    }
}
