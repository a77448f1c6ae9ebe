/* What one call costs that reads or writes 4 KiB of a file in the page cache, or a byte of a
 * stream: nanoseconds, the least of several rounds, by function. dev/experiments/io_overhead.py
 * runs it with and without `eyas io run`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 4096, ROUNDS = 9 };

static char block[BLOCK];

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static int is_read(int file, int number) { (void)number; return read(file, block, BLOCK) == BLOCK; }
static int is_pread(int file, int number) {
    return pread(file, block, BLOCK, (off_t)number * BLOCK) == BLOCK;
}
static int is_at_random(int file, int number) {
    return pread(file, block, BLOCK, (off_t)(number * 2654435761u % BLOCKS) * BLOCK) == BLOCK;
}
static int is_pwrite(int file, int number) {
    return pwrite(file, block, BLOCK, (off_t)number * BLOCK) == BLOCK;
}

static FILE *stream;
static int is_fread(int file, int number) {
    (void)file, (void)number;
    return fread(block, 1, 64, stream) == 64;
}
static int is_getc(int file, int number) { (void)file, (void)number; return getc(stream) != EOF; }

static const struct { const char *name; int (*call)(int, int); } CALLS[] = {
    {"read", is_read}, {"pread", is_pread}, {"random pread", is_at_random},
    {"pwrite", is_pwrite}, {"fread of 64", is_fread}, {"getc", is_getc},
};

int main(int count, char **words) {
    int file = count == 2 ? open(words[1], O_RDWR) : -1;
    stream = count == 2 ? fopen(words[1], "r") : NULL;
    if (file < 0 || stream == NULL) {
        fprintf(stderr, "usage: %s FILE, of 16 MiB at least\n", words[0]);
        return 2;
    }
    for (size_t which = 0; which < sizeof CALLS / sizeof *CALLS; which++) {
        double least = 1e18;
        for (int round = 0; round < ROUNDS; round++) {
            lseek(file, 0, SEEK_SET);
            rewind(stream);
            double began = now_ns();
            for (int number = 0; number < BLOCKS; number++)
                if (!CALLS[which].call(file, number)) {
                    perror(CALLS[which].name);
                    return 1;
                }
            double each = (now_ns() - began) / BLOCKS;
            least = each < least ? each : least;
        }
        printf("%s\t%.1f\n", CALLS[which].name, least);
    }
    return 0;
}
