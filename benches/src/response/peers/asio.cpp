// Asio as its users write a server: one io_context that several threads run, a session a connection
// that reads a request, computes and writes the answer. The rest is asio.rs, which names what each
// function is given.

#include <asio.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace {

using asio::ip::tcp;
using Compute = void (*)(std::uint64_t);
using Listening = void (*)(std::uint16_t);

constexpr int FIRST_SHIFT = 56;
enum First : std::uint64_t { NOTHING, WRITE, TIMER, CONNECT };

class Session : public std::enable_shared_from_this<Session> {
public:
    Session(tcp::socket socket, Compute compute, std::chrono::milliseconds due)
        : socket_(std::move(socket)), compute_(compute), due_(due) {}

    void read() {
        asio::async_read(socket_, asio::buffer(request_),
                         [self = shared_from_this()](std::error_code error, std::size_t) {
                             if (!error) self->respond();
                         });
    }

private:
    void respond() {
        std::error_code error;
        begin(error);
        if (error) return;
        compute_(request_[1] & ((std::uint64_t{1} << FIRST_SHIFT) - 1));
        asio::async_write(socket_, asio::buffer(request_),
                          [self = shared_from_this()](std::error_code error, std::size_t) {
                              if (!error) self->read();
                          });
    }

    void begin(std::error_code& error) {
        switch (request_[1] >> FIRST_SHIFT) {
            case WRITE:
                asio::write(socket_, asio::buffer(request_), error);
                break;
            case TIMER: {
                auto timer = std::make_shared<asio::steady_timer>(socket_.get_executor(), due_);
                timer->async_wait([timer](std::error_code) {});
                break;
            }
            case CONNECT: {
                auto other = std::make_shared<tcp::socket>(socket_.get_executor());
                tcp::endpoint to(asio::ip::address_v4::loopback(),
                                 static_cast<std::uint16_t>(request_[0]));
                other->async_connect(to, [other](std::error_code) {});
                break;
            }
            default:
                break;
        }
    }

    tcp::socket socket_;
    Compute compute_;
    std::chrono::milliseconds due_;
    std::array<std::uint64_t, 2> request_{};
};

void accept(tcp::acceptor& acceptor, Compute compute, std::chrono::milliseconds due) {
    acceptor.async_accept([&acceptor, compute, due](std::error_code error, tcp::socket socket) {
        if (!error) {
            std::error_code ignored;
            socket.set_option(tcp::no_delay(true), ignored);
            std::make_shared<Session>(std::move(socket), compute, due)->read();
        }
        accept(acceptor, compute, due);
    });
}

}  // namespace

extern "C" int mely_bench_asio_respond(int workers, std::uint64_t timer_ms, Listening listening,
                                       Compute compute) {
    try {
        asio::io_context context(workers);
        tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        accept(acceptor, compute, std::chrono::milliseconds(timer_ms));
        listening(acceptor.local_endpoint().port());
        std::vector<std::thread> threads;
        for (int i = 1; i < workers; ++i) {
            threads.emplace_back([&context] { context.run(); });
        }
        context.run();
        for (auto& thread : threads) thread.join();
        return 0;
    } catch (const std::system_error& error) {
        return error.code().value();
    }
}
