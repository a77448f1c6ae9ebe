/* A thread reads past the page cache without end, and is cancelled in the middle of it. Then the program closes its standard
 * output, and lives until its standard input ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK_BYTES (1 << 20)
#define ALIGN 4096

static atomic_int blocks;

static void *read_on(void *path) {
    int file = open(path, O_RDONLY | O_DIRECT);
    void *block = aligned_alloc(ALIGN, BLOCK_BYTES);
    while (file >= 0 && block != NULL && read(file, block, BLOCK_BYTES) > 0)
        blocks++;
    perror(path);
    exit(1);
}

int main(int count, char **words) {
    pthread_t reader;
    void *answer;
    char nothing;
    if (count != 2 || pthread_create(&reader, NULL, read_on, words[1]) != 0)
        return 2;
    while (blocks == 0)
        usleep(1000);
    if (pthread_cancel(reader) != 0 || pthread_join(reader, &answer) != 0 || answer != PTHREAD_CANCELED)
        return 1;
    close(STDOUT_FILENO);
    return read(STDIN_FILENO, &nothing, 1) == 0 ? 0 : 1;
}
