/* The same decomposition by MPI-IO, the peer whose programs have to be written for it: every
 * process says by a file view which blocks it has, and asks for some megabytes of them at a time.
 * Collectively (the two phases of ROMIO: few processes read what is contiguous, and pass it on), or
 * with --independent each for itself (data sieving: it reads over the blocks of others, and throws
 * them away). Reads only. */
#include "decompose.h"

#include <errno.h>
#include <mpi.h>
#include <stdlib.h>

/* How much a process asks for at a time, unless a block is larger: ROMIO's own buffers are of 4 and
 * 16 MiB. */
enum { BATCH_BYTES = 4 << 20 };

static MPI_Info hints(bool is_independent) {
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_read", is_independent ? "disable" : "enable");
    MPI_Info_set(info, "romio_ds_read", is_independent ? "enable" : "disable");
    return info;
}

/* Shows a process its blocks as if they were one piece. */
static int view(const struct asked *asked, MPI_File file, struct share share, MPI_Info info) {
    MPI_Datatype block, blocks;
    MPI_Type_contiguous(asked->block_bytes, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, share.step * asked->block_bytes, &blocks);
    MPI_Type_commit(&blocks);
    MPI_Offset first = share.first * asked->block_bytes;
    int failed = MPI_File_set_view(file, first, MPI_BYTE, blocks, "native", info);
    MPI_Type_free(&blocks);
    MPI_Type_free(&block);
    return failed;
}

static int work(const struct asked *asked, int process, struct result *result) {
    MPI_Info info = hints(asked->is_independent);
    MPI_File file;
    const char *name = file_of(asked, process);
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, info, &file) != MPI_SUCCESS)
        return EIO;
    struct share share = share_of(asked, process);
    if (view(asked, file, share, info) != MPI_SUCCESS)
        return EIO;
    uint64_t salt = salt_of(file_of(asked, process));
    size_t bytes = asked->block_bytes, count = bytes / sizeof(uint64_t);
    size_t batch = bytes < BATCH_BYTES ? BATCH_BYTES / bytes : 1;
    /* All make as many calls as process 0, which has most blocks: collective calls need
     * everybody. */
    uint64_t most = (asked->file_bytes / bytes + asked->all - 1) / asked->all;
    uint64_t *blocks = malloc(batch * bytes);
    if (blocks == NULL)
        return errno;
    MPI_Barrier(MPI_COMM_WORLD);
    result->begin_us = now_us();
    for (uint64_t done = 0; done < most; done += batch) {
        uint64_t left = done < share.count ? share.count - done : 0;
        int read = left < batch ? left : batch;
        uint64_t began_us = now_us();
        MPI_Status status;
        int failed = asked->is_independent
                         ? MPI_File_read(file, blocks, read * bytes, MPI_BYTE, &status)
                         : MPI_File_read_all(file, blocks, read * bytes, MPI_BYTE, &status);
        if (failed != MPI_SUCCESS)
            return EIO;
        count_call(result, began_us, read * bytes);
        for (int place = 0; place < read; place++) {
            uint64_t number = block_at(asked, share, done + place);
            result->wrong_words += count_wrong(blocks + place * count, count, number * bytes, salt);
        }
    }
    result->end_us = now_us();
    free(blocks);
    MPI_File_close(&file);
    return 0;
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    struct asked asked = read_command_line(count, words);
    int process;
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    MPI_Comm_size(MPI_COMM_WORLD, &asked.processes);
    asked.all = asked.processes;
    struct result result = {0}, *results = calloc(asked.processes, sizeof result);
    result.error = work(&asked, process, &result);
    if (result.error != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Gather(&result, sizeof result, MPI_BYTE, results, sizeof result, MPI_BYTE, 0,
               MPI_COMM_WORLD);
    int code = process == 0 ? report(&asked, results) : 0;
    MPI_Finalize();
    return code;
}
