// Asio as its users serialize by key: a strand for each color. The rest of this scheduler is asio.rs,
// which names what each function is given.

#include <asio.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using Executor = asio::io_context::executor_type;

struct Pool {
    explicit Pool(int threads, std::size_t colors)
        : context(threads), guard(asio::make_work_guard(context)) {
        strands.reserve(colors);
        for (std::size_t i = 0; i < colors; ++i) {
            strands.emplace_back(context.get_executor());
        }
    }

    asio::io_context context;
    asio::executor_work_guard<Executor> guard;
    std::vector<asio::strand<Executor>> strands;
};

}  // namespace

extern "C" {

Pool* mely_bench_asio_new(int threads, std::size_t colors) { return new Pool(threads, colors); }

void mely_bench_asio_post(Pool* pool, std::uint32_t color, void (*call)(void*), void* data) {
    asio::post(pool->strands[color], [call, data] { call(data); });
}

void mely_bench_asio_run(Pool* pool) { pool->context.run(); }

void mely_bench_asio_end(Pool* pool) { pool->context.stop(); }
}
