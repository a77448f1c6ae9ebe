/* What the two programs that decompose a file have in common: who has which blocks, what is in
 * them, and what is said of how it went.
 *
 * A file's content follows from its name and the place in it, so that whatever is read is known to
 * be right or wrong, and a file taken for another, or a block for another, is found. */
#ifndef DECOMPOSE_H
#define DECOMPOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is asked for on the command line. */
struct asked {
    char *const *files;   /* names of one file: process p takes number p modulo their count */
    int file_count;
    int processes;        /* of this program */
    int first;            /* the number of its first process */
    int all;              /* processes of all programs that share the file */
    size_t block_bytes;   /* granularity: a multiple of eight */
    uint64_t file_bytes;  /* how much of the file is decomposed: whole blocks of it */
    bool is_contiguous;   /* each process has one piece; else blocks p, p + all, p + 2 all ... */
    bool is_shuffled;     /* each process goes to and fro between its blocks, as if at random */
    bool is_write;
    bool is_independent;  /* of the MPI program: each process reads for itself */
};

/* The blocks of a process: `count` of them, first, first + step ... */
struct share {
    uint64_t first, step, count;
};

/* How it went for one process. */
struct result {
    uint64_t begin_us, end_us;
    uint64_t bytes, calls, wrong_words;
    uint64_t longest_us, waited_us; /* the longest call, and all of them */
    int error;                      /* errno of what failed, else 0 */
};

/* Reads the command line; ends the program if it makes no sense. */
struct asked read_command_line(int count, char **words);

const char *file_of(const struct asked *asked, int process);
struct share share_of(const struct asked *asked, int process);
/* Which block it comes to as the one of this place. */
uint64_t block_at(const struct asked *asked, struct share share, uint64_t place);

/* What tells a file's words from those of another. */
uint64_t salt_of(const char *file);
void fill(uint64_t *words, size_t count, uint64_t offset, uint64_t salt);
/* How many of these words are not those of the file at this offset. */
uint64_t count_wrong(const uint64_t *words, size_t count, uint64_t offset, uint64_t salt);

/* The monotonic clock, which all processes of a machine share. */
uint64_t now_us(void);
void count_call(struct result *result, uint64_t began_us, uint64_t bytes);

/* Prints a line of JSON for each process; the program's exit code. */
int report(const struct asked *asked, const struct result *results);

#endif
