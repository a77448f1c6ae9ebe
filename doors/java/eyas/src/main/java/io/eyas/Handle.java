package io.eyas;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/** An object of the C library. It is closed once: by {@link #close}, or after it was collected. */
abstract class Handle implements AutoCloseable {
    private static final Cleaner CLEANER = Cleaner.create();

    /** The handle in C. After it was closed, the C library refuses it. */
    final long number;

    private final Cleaner.Cleanable closing;

    Handle(long number, LongConsumer close) {
        this.number = number;
        // It must not keep this object.
        this.closing = CLEANER.register(this, () -> close.accept(number));
    }

    /** Closes it. Closing it again does nothing; other methods fail from then on. */
    @Override
    public void close() {
        closing.clean();
    }
}
