package io.eyas.spark;

import io.eyas.EyasRun;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The run of a scan, in the driver. A node leads a limited number of runs, so a run ends as soon as
 * it is no longer needed:
 *
 * <ul>
 *   <li>When this object was collected. The scan and its partitions refer to it. Plans, RDDs, and
 *       the stages of Spark's scheduler refer to the partitions. So as long as the driver can begin
 *       an attempt, the object is not collected.
 *   <li>When the application ends.
 *   <li>When the driver was killed: then the run is idle, and its leader forgets it.
 * </ul>
 *
 * While the run is open here, its leader does not forget it.
 */
final class ScanRun {
    /** From this number of runs on, the driver collects garbage at each such number of scans. */
    private static final int MANY = 128;

    private static final Logger LOG = LoggerFactory.getLogger(ScanRun.class);
    private static final Cleaner CLEANER = Cleaner.create();
    private static final Set<Ending> LIVE = ConcurrentHashMap.newKeySet();

    /** The application whose end is listened to. */
    private static String application;

    private static int opened;

    private ScanRun() {}

    /** Takes over a run. */
    static ScanRun of(EyasRun run) {
        ScanRun scanRun = new ScanRun();
        Ending ending = new Ending(run);
        LIVE.add(ending);
        CLEANER.register(scanRun, ending);
        listen();
        return scanRun;
    }

    static int count() {
        return LIVE.size();
    }

    /**
     * Looks for scans that are no longer needed if there are many runs. With 1,000 runs of which 20
     * are needed, 980 end; otherwise the heap could have room for more runs than a node leads.
     */
    static synchronized void collectMany() {
        opened++;
        if (opened % MANY == 0 && LIVE.size() >= MANY) {
            System.gc();
        }
    }

    private static synchronized void listen() {
        SparkContext context = SparkContext.getOrCreate();
        if (context.applicationId().equals(application)) {
            return;
        }
        application = context.applicationId();
        context.addSparkListener(
                new SparkListener() {
                    @Override
                    public void onApplicationEnd(SparkListenerApplicationEnd end) {
                        List.copyOf(LIVE).forEach(Ending::run);
                    }
                });
    }

    /** Ends a run once. It must not refer to the object whose collection it waits for. */
    private static final class Ending implements Runnable {
        private final EyasRun run;

        Ending(EyasRun run) {
            this.run = run;
        }

        @Override
        public void run() {
            if (!LIVE.remove(this)) {
                return;
            }
            try (run) {
                run.end();
            } catch (IOException failure) {
                LOG.info("A run has not been ended, and is forgotten when idle", failure);
            }
        }
    }
}
