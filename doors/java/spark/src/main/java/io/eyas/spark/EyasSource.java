package io.eyas.spark;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

import java.util.Map;

/**
 * Lines of text files of a cluster, as of {@code spark.read.text}: {@code
 * spark.read.format("eyas").load("eyas://NAME/PATH")}. The partitions are not parts of files: the
 * task of a partition claims pieces of the files while it runs, so fast nodes read more.
 *
 * <p>Why each line counts once:
 *
 * <ul>
 *   <li>A scan opens a run when Spark plans its partitions, and partition 3 is task 3 of the run.
 *       All attempts of a task read one list of pieces from its beginning: retries, speculative
 *       attempts, recomputed stages, and later evaluations of the same RDD. An attempt that has
 *       read the list to its end has sealed it. From then on, the partition never changes. All
 *       sealed lists together have each piece once. So Spark may take any attempt, and may combine
 *       partitions that it has computed at different times.
 *   <li>A reader that stops early, as for {@code take} and {@code limit}, does not seal the list.
 *       The partition keeps the pieces of its list for the term of the run, and the next attempt
 *       goes on with them. So the first lines of two partitions are different lines. After a term
 *       in which no attempt was alive, the pieces go to other partitions. The lines that were read
 *       count only in a result that is already complete without the others, such as 5 lines for
 *       {@code take(5)}. The term is an hour by default, because Spark computes lost partitions
 *       again by itself.
 *   <li>An attempt that knows a list which its task has lost fails, and Spark begins another one.
 *   <li>The run lives as long as the driver can evaluate the scan; see {@link ScanRun}.
 * </ul>
 *
 * <p>Each action plans its own scan, which has a run of its own. Files are listed at that time.
 */
public final class EyasSource implements TableProvider, DataSourceRegister {
    private static final StructType LINES =
            new StructType().add("value", DataTypes.StringType, true);

    /** The constructor that Spark calls. */
    public EyasSource() {}

    /** Number of runs that scans of this program have opened, and that have not ended. */
    public static int openRuns() {
        return ScanRun.count();
    }

    @Override
    public String shortName() {
        return "eyas";
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return LINES;
    }

    /** Whether a program may give the column another name. */
    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(
            StructType schema, Transform[] partitioning, Map<String, String> properties) {
        if (schema.length() != 1 || !schema.apply(0).dataType().equals(DataTypes.StringType)) {
            throw new IllegalArgumentException(
                    "the source eyas reads lines as one column of type string, and cannot read"
                            + " them as "
                            + schema.simpleString()
                            + ": write a schema such as 'line string', or use another source, such"
                            + " as csv, on the same eyas:// path");
        }
        ElasticOptions.of(properties).checkPaths();
        return new LinesTable(schema);
    }
}
