// Finds the longest line of a file that it writes, with tasks over its blocks and with elastic
// blocks.

#include <eyas.hpp>

#include <algorithm>
#include <iostream>
#include <thread>

static std::size_t longest(std::string_view text)
{
    std::size_t longest = 0, begin = 0;
    for (std::size_t end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1)
        longest = std::max(longest, end - begin);
    return longest;
}

// Works on blocks of the run until none is left. Each worker has a connection of its own.
static void work(const std::string &address)
{
    eyas::client client;
    eyas::run run = client.join_run(address);
    for (bool has_more = true; has_more;) {
        has_more = false;
        eyas::block block = run.begin();
        std::size_t found = 0;
        try {
            while (std::optional<eyas_piece> piece = block.next()) {
                found = std::max(found, longest({piece->bytes, piece->length}));
                has_more = true;
            }
            if (has_more)
                block.commit(std::to_string(found));
        } catch (const eyas::discarded &) {
            // Another worker was faster with this block.
            has_more = true;
        }
    }
}

int main()
try {
    eyas::client client;
    eyas_write_options options{};
    options.format = "lines";
    options.chunk_bytes = 64 << 10;
    eyas::writer writer = client.create("/lines.txt", &options);
    for (int line = 0; line < 20000; line++)
        writer.write(std::string(line % 500 == 0 ? line / 200 : 10, 'x') + "\n");
    writer.publish();

    eyas::task task({"wc", "-L"});
    task.each_block("eyas:///lines.txt").cpus(0.5);
    std::uint32_t job = client.submit(eyas::job("longest").add(task));
    int of_tasks = 0;
    eyas::results results = client.results(job);
    while (std::optional<eyas_task_result> result = results.next())
        of_tasks = std::max(of_tasks, std::stoi(result->stdout_bytes));
    client.wait(job);

    eyas::run run = client.open_run({"/lines.txt"}, 2);
    std::thread first(work, run.address()), second(work, run.address());
    eyas_run_info info = run.wait();
    first.join();
    second.join();
    int of_blocks = 0;
    for (std::uint32_t output = 0; output < info.outputs; output++)
        of_blocks = std::max(of_blocks, std::stoi(client.open(run.output(output)).read()));
    run.end();
    client.remove("/lines.txt");
    std::cout << of_tasks << " " << of_blocks << "\n";
} catch (const eyas::error &error) {
    std::cerr << eyas_status_name(error.status()) << ": " << error.what() << "\n";
    return 1;
}
