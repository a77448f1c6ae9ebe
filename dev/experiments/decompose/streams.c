/* Copies its standard input to its standard output, by one way after the other that the C library
 * has for it. Lines are read without a lock while another thread holds it, which must not wait for
 * that. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BYTES 10000
#define LINES 10000
#define LINE_BYTES 256

static pthread_barrier_t turns;

static void *hold(void *nothing) {
    flockfile(stdin);
    pthread_barrier_wait(&turns);
    pthread_barrier_wait(&turns);
    funlockfile(stdin);
    return nothing;
}

int main(void) {
    char line[LINE_BYTES];
    pthread_t holder;
    for (int byte, count = 0; count < BYTES && (byte = getchar()) != EOF; count++)
        putchar(byte);
    for (int byte, count = 0; count < BYTES && (byte = getchar_unlocked()) != EOF; count++)
        putchar_unlocked(byte);
    pthread_barrier_init(&turns, NULL, 2);
    if (pthread_create(&holder, NULL, hold, NULL) != 0)
        return 1;
    pthread_barrier_wait(&turns);
    for (int count = 0; count < LINES && fgets_unlocked(line, LINE_BYTES, stdin) != NULL; count++)
        fputs_unlocked(line, stdout);
    pthread_barrier_wait(&turns);
    pthread_join(holder, NULL);
    while (fgets(line, LINE_BYTES, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        puts(line);
    }
    return ferror(stdin) || fflush(stdout) != 0;
}
