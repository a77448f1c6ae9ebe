/*
 * Counts words with elastic blocks. One process opens the run, and waits:
 *
 *     word_count open FILE...        prints the address of the run, and in the end the counts
 *
 * Any number of others work, on any node, and may come, go and die at any time:
 *
 *     word_count work ADDRESS
 *
 * Each word counts once: the result of a worker counts only for the pieces that it has committed.
 */

#include <eyas.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define LONGEST 127

struct word {
    struct word *next;
    unsigned long count;
    char text[LONGEST + 1];
};

struct words {
    struct word *buckets[BUCKETS];
};

/* Ends the program with the message of the last failure. */
static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, eyas_error_message());
    exit(1);
}

static void add(struct words *words, const char *text, size_t length, unsigned long count)
{
    unsigned hash = 5381;
    struct word *word;
    size_t i;

    if (length > LONGEST)
        length = LONGEST;
    for (i = 0; i < length; i++)
        hash = hash * 33 + (unsigned char)text[i];
    for (word = words->buckets[hash % BUCKETS]; word; word = word->next)
        if (strlen(word->text) == length && !memcmp(word->text, text, length))
            break;
    if (!word) {
        if (!(word = calloc(1, sizeof *word)))
            exit(1);
        memcpy(word->text, text, length);
        word->next = words->buckets[hash % BUCKETS];
        words->buckets[hash % BUCKETS] = word;
    }
    word->count += count;
}

/* The counts as text, one line for each word; the caller frees it. Empties the table. */
static char *text_of(struct words *words, size_t *length)
{
    size_t room = 1, i;
    struct word *word, *next;
    char *text;

    for (i = 0; i < BUCKETS; i++)
        for (word = words->buckets[i]; word; word = word->next)
            room += LONGEST + 24;
    if (!(text = malloc(room)))
        exit(1);
    *length = 0;
    for (i = 0; i < BUCKETS; i++) {
        for (word = words->buckets[i]; word; word = next) {
            next = word->next;
            *length += (size_t)sprintf(text + *length, "%s %lu\n", word->text, word->count);
            free(word);
        }
        words->buckets[i] = NULL;
    }
    return text;
}

/* Works until the run has no piece left. */
static void work(eyas_run *run)
{
    static struct words words;
    eyas_block *block;
    eyas_piece piece;
    eyas_status status;
    const char *bytes;
    char *text;
    size_t pieces, i, begin, length;

    do {
        if (eyas_block_open(run, &block))
            fail("block");
        for (pieces = 0;; pieces++) {
            status = eyas_block_next(block, EYAS_FOREVER, &piece, sizeof piece);
            if (status != EYAS_STATUS_OK)
                break;
            fprintf(stderr, "%s: %lu bytes at %lu\n", piece.file, (unsigned long)piece.length,
                    (unsigned long)piece.offset);
            bytes = piece.bytes;
            for (i = 0; i < piece.length; i++) {
                for (begin = i; i < piece.length && isalnum((unsigned char)bytes[i]); i++)
                    ;
                if (i > begin)
                    add(&words, bytes + begin, i - begin, 1);
            }
        }
        text = text_of(&words, &length);
        if (status == EYAS_STATUS_END && pieces > 0)
            status = eyas_block_commit(block, text, length);
        free(text);
        /* Another worker was faster with this block: its counts are counted, and these are not. */
        if (status != EYAS_STATUS_OK && status != EYAS_STATUS_END &&
            status != EYAS_STATUS_DISCARDED)
            fail("work");
        eyas_block_close(block);
    } while (pieces > 0 || status == EYAS_STATUS_DISCARDED);
}

/* Adds the counts of an output. */
static void add_output(eyas_client *client, const char *path, struct words *words)
{
    eyas_reader *reader;
    eyas_file_info info;
    char *text, *line, *space;
    size_t count;

    if (eyas_open(client, path, &reader) || eyas_reader_info(reader, &info, sizeof info))
        fail(path);
    if (!(text = calloc(1, (size_t)info.size_bytes + 1)))
        exit(1);
    if (eyas_read(reader, 0, text, (size_t)info.size_bytes, &count))
        fail(path);
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if ((space = strchr(line, ' ')))
            add(words, line, (size_t)(space - line), strtoul(space, NULL, 10));
    free(text);
    eyas_reader_close(reader);
}

int main(int argc, char **argv)
{
    static struct words words;
    eyas_client *client;
    eyas_run *run;
    eyas_run_info info;
    const char *address, *path;
    char *text;
    size_t length;
    uint32_t i;

    if (argc < 3 || (strcmp(argv[1], "open") && strcmp(argv[1], "work"))) {
        fprintf(stderr, "word_count open FILE... | work ADDRESS\n");
        return 2;
    }
    if (eyas_connect(NULL, &client))
        fail("connect");
    if (!strcmp(argv[1], "work")) {
        if (eyas_run_join(client, argv[2], &run))
            fail("join");
        work(run);
    } else {
        const char *const *files = (const char *const *)(argv + 2);
        if (eyas_run_open(client, files, (size_t)argc - 2, 4, 3000, &run) ||
            eyas_run_address(run, &address))
            fail("open");
        printf("%s\n", address);
        fflush(stdout);
        if (eyas_run_wait(run, EYAS_FOREVER, &info, sizeof info))
            fail("wait");
        for (i = 0; i < info.outputs; i++) {
            if (eyas_run_output(run, i, &path))
                fail("output");
            add_output(client, path, &words);
        }
        text = text_of(&words, &length);
        fwrite(text, 1, length, stdout);
        free(text);
        if (eyas_run_end(run))
            fail("end");
    }
    eyas_run_close(run);
    eyas_client_close(client);
    return 0;
}
