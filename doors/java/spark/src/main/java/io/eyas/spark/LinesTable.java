package io.eyas.spark;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

import java.util.Set;

/** The lines of the files that a program has loaded. */
final class LinesTable implements SupportsRead {
    private final StructType schema;

    LinesTable(StructType schema) {
        this.schema = schema;
    }

    @Override
    public String name() {
        return "eyas";
    }

    @Override
    @SuppressWarnings("deprecation") // Spark asks for it until a table has columns() of its own.
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new LinesScanBuilder(ElasticOptions.of(options.asCaseSensitiveMap()), schema);
    }

    /** Leaves out the column if no expression needs it, as for count(). */
    private static final class LinesScanBuilder implements SupportsPushDownRequiredColumns {
        private final ElasticOptions options;
        private StructType schema;

        LinesScanBuilder(ElasticOptions options, StructType schema) {
            this.options = options;
            this.schema = schema;
        }

        @Override
        public void pruneColumns(StructType required) {
            schema = required;
        }

        @Override
        public Scan build() {
            return new ElasticScan(options, schema);
        }
    }
}
