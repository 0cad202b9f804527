#include "cli/output/message.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace orrery {
namespace {

constexpr size_t max_bytes = 1 << 14;  // two paths and more

}  // namespace

bool send_message(int socket, const Json& text, std::array<int, 2> files, bool droppable) {
    std::vector<uint8_t> bytes = Json::to_cbor(text);  // a path need not be UTF-8, as JSON's text demands
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof files)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const auto count =
        static_cast<size_t>(std::count_if(files.begin(), files.end(), [](int file) { return file >= 0; }));
    if (count > 0) {
        message.msg_control = space;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(head), files.data(), count * sizeof(int));
    }
    while (::sendmsg(socket, &message, MSG_NOSIGNAL | (droppable ? MSG_DONTWAIT : 0)) < 0) {
        if (errno == EPIPE || errno == ECONNRESET) return true;
        if (errno == ETOOMANYREFS && !droppable)
            ::poll(nullptr, 0, 10);  // descriptors that were not received yet
        else if (errno != EINTR)
            return false;
    }
    return true;
}

Received receive(int socket, OutputMessage& message) {
    std::array<char, max_bytes> bytes;
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof message.files)];
    msghdr to{};
    to.msg_iov = &part;
    to.msg_iovlen = 1;
    to.msg_control = space;
    to.msg_controllen = sizeof space;
    ssize_t got = 0;
    while ((got = ::recvmsg(socket, &to, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
    }
    if (got < 0) return errno == EAGAIN ? Received::nothing : Received::end;
    if (got == 0) return Received::end;
    message.cut = (to.msg_flags & MSG_CTRUNC) != 0;
    if (const cmsghdr* const head = CMSG_FIRSTHDR(&to); head && head->cmsg_type == SCM_RIGHTS)
        std::memcpy(message.files.data(), CMSG_DATA(head),
                    std::min(sizeof message.files, head->cmsg_len - CMSG_LEN(0)));
    message.text = Json::from_cbor(bytes.data(), bytes.data() + got, true, false);
    return Received::message;
}

}  // namespace orrery
