/* usage: cancelled thread|jump FILE
 *
 * Reads past the page cache without end, in a thread that is cancelled in the middle of it; or
 * until a signal's handler jumps out of it. Then the program closes its standard output, and lives
 * until its standard input ends. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (1 << 20)
#define ALIGN 4096

static atomic_int blocks;
static sigjmp_buf before;

static void *read_on(void *path) {
    int file = open(path, O_RDONLY | O_DIRECT);
    void *block = aligned_alloc(ALIGN, BLOCK_BYTES);
    while (file >= 0 && block != NULL && read(file, block, BLOCK_BYTES) > 0)
        blocks++;
    perror(path);
    exit(1);
}

/* Has begun to read, and is most likely to be in the middle of it. */
static void wait_until_it_reads(void) {
    while (blocks == 0)
        usleep(1000);
}

static int is_cancelled(char *path) {
    pthread_t reader;
    void *answer;
    if (pthread_create(&reader, NULL, read_on, path) != 0)
        return 0;
    wait_until_it_reads();
    return pthread_cancel(reader) == 0 && pthread_join(reader, &answer) == 0 &&
           answer == PTHREAD_CANCELED;
}

static void jump(int number) { siglongjmp(before, number); }

static void *interrupt(void *reader) {
    wait_until_it_reads();
    pthread_kill(*(pthread_t *)reader, SIGUSR1);
    return NULL;
}

static int has_jumped(char *path) {
    pthread_t self = pthread_self(), other;
    signal(SIGUSR1, jump);
    if (sigsetjmp(before, 1) == 0 && pthread_create(&other, NULL, interrupt, &self) == 0)
        read_on(path);
    return pthread_join(other, NULL) == 0;
}

int main(int count, char **words) {
    char nothing;
    if (count != 3)
        return 2;
    if (!(strcmp(words[1], "jump") == 0 ? has_jumped : is_cancelled)(words[2]))
        return 1;
    close(STDOUT_FILENO);
    return read(STDIN_FILENO, &nothing, 1) == 0 ? 0 : 1;
}
