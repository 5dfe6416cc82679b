package runnel;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

import org.apache.cassandra.cql3.ColumnIdentifier;
import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.cql3.UntypedResultSet;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.ConsistencyLevel;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.marshal.CompositeType;
import org.apache.cassandra.db.partitions.Partition;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.Cell;
import org.apache.cassandra.db.rows.ColumnData;
import org.apache.cassandra.db.rows.ComplexColumnData;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.triggers.ITrigger;

/**
 * Keeps the twin of each column: written with the column when there is none yet, deleted with the column, else left alone.
 *
 * It reads the twins of the rows that are written, so a write costs a read. The twins of collections are
 * made by the next cycle where they hold values.
 */
abstract class AuditTrigger implements ITrigger
{
    private static final String TWIN = "audit-";

    /** What the twin of a column written with this value at this time holds; a collection has no value here. */
    protected abstract Object twin(ByteBuffer value, long time);

    public Collection<Mutation> augment(Partition update)
    {
        TableMetadata table = update.metadata();
        PartitionUpdate.SimpleBuilder twins = PartitionUpdate.simpleBuilder(table, update.partitionKey());
        boolean any = false;
        try (UnfilteredRowIterator rows = update.unfilteredIterator())
        {
            any |= row(table, update, twins, rows.staticRow());
            while (rows.hasNext())
            {
                Unfiltered next = rows.next();
                if (next.isRow())
                    any |= row(table, update, twins, (Row) next);
            }
        }
        return any ? List.of(twins.buildAsMutation()) : List.of();
    }

    private boolean row(TableMetadata table, Partition update, PartitionUpdate.SimpleBuilder twins, Row row)
    {
        List<ColumnData> changed = new ArrayList<>();
        for (ColumnData data : row)
            if (table.getColumn(new ColumnIdentifier(TWIN + data.column().name, true)) != null)
                changed.add(data);
        if (changed.isEmpty())
            return false;
        UntypedResultSet.Row known = known(table, update, row, changed);
        Row.SimpleBuilder made = row.isStatic() ? twins.row() : twins.row(row.clustering());
        made.noPrimaryKeyLivenessInfo();
        boolean any = false;
        for (ColumnData data : changed)
            any |= column(made, data, known != null && known.has(TWIN + data.column().name));
        return any;
    }

    private boolean column(Row.SimpleBuilder made, ColumnData data, boolean known)
    {
        String twin = TWIN + data.column().name;
        if (data instanceof ComplexColumnData)
            return collection(made, (ComplexColumnData) data, twin, known);
        Cell<?> cell = (Cell<?>) data;
        if (cell.isTombstone())
        {
            made.timestamp(cell.timestamp()).ttl(0).delete(twin);
            return true;
        }
        if (known)
            return false;
        made.timestamp(cell.timestamp()).ttl(cell.isExpiring() ? cell.ttl() : 0).add(twin, twin(cell.buffer(), cell.timestamp()));
        return true;
    }

    private boolean collection(Row.SimpleBuilder made, ComplexColumnData data, String twin, boolean known)
    {
        long time = data.maxTimestamp();
        if (data.cellsCount() == 0)
        {
            made.timestamp(time).ttl(0).delete(twin);
            return true;
        }
        Object held = twin(null, time);
        if (known || held == null)
            return false;
        made.timestamp(time).ttl(0).add(twin, held);
        return true;
    }

    private static UntypedResultSet.Row known(TableMetadata table, Partition update, Row row, List<ColumnData> changed)
    {
        List<String> names = new ArrayList<>();
        for (ColumnData data : changed)
            names.add(quoted(TWIN + data.column().name));
        List<String> where = new ArrayList<>();
        List<Object> values = new ArrayList<>();
        ByteBuffer key = update.partitionKey().getKey();
        ByteBuffer[] parts = table.partitionKeyColumns().size() == 1
                           ? new ByteBuffer[]{ key }
                           : ((CompositeType) table.partitionKeyType).split(key);
        for (int i = 0; i < parts.length; i++)
        {
            where.add(quoted(table.partitionKeyColumns().get(i).name.toString()) + " = ?");
            values.add(parts[i].duplicate());
        }
        Clustering<?> clustering = row.clustering();
        if (!row.isStatic())
            for (int i = 0; i < clustering.size(); i++)
            {
                where.add(quoted(table.clusteringColumns().get(i).name.toString()) + " = ?");
                values.add(clustering.bufferAt(i));
            }
        String cql = "SELECT " + String.join(", ", names) + " FROM " + quoted(table.keyspace) + "." + quoted(table.name)
                     + " WHERE " + String.join(" AND ", where) + " LIMIT 1";
        UntypedResultSet found = QueryProcessor.execute(cql, ConsistencyLevel.QUORUM, values.toArray());
        return found.isEmpty() ? null : found.one();
    }

    private static String quoted(String name)
    {
        return '"' + name.replace("\"", "\"\"") + '"';
    }
}
