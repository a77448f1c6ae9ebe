package io.eyas;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.file.InvalidPathException;
import java.time.Duration;
import java.time.Instant;

/** Conversions of arguments. */
final class Texts {
    /** A timeout without end. */
    private static final long FOREVER_MS = -1;

    private Texts() {}

    /** A path or another text as the C library has it. */
    static byte[] utf8(String text) {
        if (text.indexOf('\0') >= 0) {
            throw new InvalidPathException(shown(text), "a text for eyas must not have a NUL");
        }
        try {
            ByteBuffer bytes = UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            return copy;
        } catch (CharacterCodingException impossible) {
            throw new InvalidPathException(
                    shown(text), "this text is not UTF-8: half of a surrogate pair is in it");
        }
    }

    /** A text without characters that cannot be printed. */
    private static String shown(String text) {
        StringBuilder shown = new StringBuilder();
        text.codePoints()
                .forEach(
                        point -> {
                            boolean isSurrogate =
                                    point >= Character.MIN_SURROGATE
                                            && point <= Character.MAX_SURROGATE;
                            if (isSurrogate || Character.isISOControl(point)) {
                                shown.append(String.format("\\u%04x", point));
                            } else {
                                shown.appendCodePoint(point);
                            }
                        });
        return shown.toString();
    }

    static String text(byte[] utf8) {
        return utf8 == null ? null : new String(utf8, UTF_8);
    }

    /** A duration in milliseconds; null is one without end. */
    static long milliseconds(Duration duration) {
        if (duration == null) {
            return FOREVER_MS;
        }
        if (duration.isNegative()) {
            throw new IllegalArgumentException("a duration must not be negative: " + duration);
        }
        try {
            return duration.toMillis();
        } catch (ArithmeticException tooLong) {
            return FOREVER_MS;
        }
    }

    /** Nanoseconds since 1970. */
    static long nanoseconds(Instant time) {
        try {
            long ns =
                    Math.addExact(
                            Math.multiplyExact(time.getEpochSecond(), 1_000_000_000L),
                            time.getNano());
            if (ns >= 0) {
                return ns;
            }
        } catch (ArithmeticException outside) {
            // As below.
        }
        throw new IllegalArgumentException("a time must lie between 1970 and 2262: " + time);
    }

    static Instant instant(long ns) {
        return Instant.ofEpochSecond(ns / 1_000_000_000L, ns % 1_000_000_000L);
    }

    /** A size or an offset. */
    static long bytes(String what, long bytes) {
        if (bytes < 0) {
            throw new IllegalArgumentException(what + " must not be negative: " + bytes);
        }
        return bytes;
    }
}
