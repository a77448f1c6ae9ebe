package io.eyas;

import java.time.Duration;

/**
 * How a run is led.
 *
 * @param workers about how many workers or tasks will join it
 * @param term how long a worker may be silent until it loses its block: 3 s to 1 h; null for 10 s
 * @param idle the run is forgotten if no program has asked about it for this time; null for half an
 *     hour
 * @param policy the scheduler that assigns pieces, and its parameters: {@code lean}, {@code
 *     lean,alpha=0.7}, {@code static}, {@code multiwave,min-block=1MiB,waves=3}, {@code
 *     io-aware,alpha=0.5,beta=0.25}; null for {@code lean}
 */
public record RunOptions(int workers, Duration term, Duration idle, String policy) {
    /** Checks the number of workers. */
    public RunOptions {
        if (workers < 0) {
            throw new IllegalArgumentException("a number of workers must not be negative");
        }
    }
}
