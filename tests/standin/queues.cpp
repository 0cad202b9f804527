// CUDA's runtime: streams, events, captures, graphs.
#include <algorithm>
#include <iterator>
#include <utility>

#include "standin/calls.h"
#include "standin/stream.h"

namespace orrery::standin {

namespace {

thread_local std::shared_ptr<Capture> begun;  ///< by this thread, and perhaps ended by now

cudaError_t broken(Capture& capture, cudaError_t why) {
    capture.broken = true;
    return why;
}

/// Of a stream that is captured no call may wait, and none may ask.
cudaError_t refuse_captured(CUstream_st& stream) {
    const std::lock_guard lock(captures());
    return stream.capture ? broken(*stream.capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

/// What the host asks of an event: its point, null where it was never recorded.
cudaError_t point_of(cudaEvent_t event, std::shared_ptr<Point>& point) {
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return status;
    const std::lock_guard lock(captures());
    if (event->capture)
        return event->capture->ended ? cudaErrorCapturedEvent : broken(*event->capture, cudaErrorCapturedEvent);
    point = event->point;
    return fault_of(event->device);
}

void add_to(std::vector<size_t>& frontier, const std::vector<size_t>& more) {
    std::vector<size_t> both;
    std::set_union(frontier.begin(), frontier.end(), more.begin(), more.end(), std::back_inserter(both));
    frontier = std::move(both);
}

/// Whether the nodes that a stream ended with come before those that the capture's first stream ended with.
bool joined(const Graph& graph, const std::vector<size_t>& end, const std::vector<size_t>& stream) {
    std::vector<bool> before(graph.nodes.size());
    for (const size_t node : end) before[node] = true;
    for (size_t i = graph.nodes.size(); i-- > 0;)  // a node's predecessors have smaller numbers
        if (before[i])
            for (const size_t other : graph.nodes[i].after) before[other] = true;
    return std::all_of(stream.begin(), stream.end(), [&](size_t node) { return before[node]; });
}

/// Under captures(). A stream that waits for an event of a capture becomes part of it.
cudaError_t wait_captured(CUstream_st& stream, const CUevent_st& event) {
    Capture& capture = *event.capture;
    if (capture.ended) return cudaErrorCapturedEvent;
    if (capture.broken) return cudaErrorStreamCaptureInvalidated;
    if (!stream.capture) {
        stream.capture = event.capture;
        stream.frontier.clear();
        stream.lane = capture.graph.lanes++;
        capture.streams.push_back(&stream);
    }
    add_to(stream.frontier, event.frontier);
    return cudaSuccess;
}

/// A node of the captured stream that waits, whenever it runs, for what the event was recorded behind by then.
cudaError_t wait_external(CUstream_st& stream, CUevent_st& event) {
    std::shared_ptr<Point> then;
    {
        const std::lock_guard lock(captures());
        if (!stream.capture || event.capture) return cudaErrorInvalidValue;
        then = event.point;
    }
    return stream.add([&event, then] {
        std::shared_ptr<Point> point;
        if (planted("old_gate")) return then ? then->wait() : void();
        {
            const std::lock_guard lock(captures());
            point = event.point;
        }
        if (point) point->wait();
    });
}

}  // namespace

cudaError_t refuse_unsafe() {
    const std::lock_guard lock(captures());
    return begun && !begun->ended ? broken(*begun, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

}  // namespace orrery::standin

using namespace orrery::standin;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
    if (flags != cudaStreamNonBlocking) return told(cudaErrorNotSupported);  // others wait for stream 0: not here
    *stream = new CUstream_st(current_device());
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (!stream) return told(cudaErrorInvalidResourceHandle);
    if (const cudaError_t status = refuse_captured(*stream); status != cudaSuccess) return told(status);
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    stream->mark()->wait();
    return told(fault_of(stream->device));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (!stream) return told(cudaErrorInvalidResourceHandle);
    return told(stream->add([=] { function(data); }));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    if (!stream || !event) return told(cudaErrorInvalidResourceHandle);
    if (planted("no_wait")) return cudaSuccess;
    if (flags == cudaEventWaitExternal) return told(wait_external(*stream, *event));
    std::shared_ptr<Point> point;
    {
        const std::lock_guard lock(captures());
        if (!event->capture && !event->point) return cudaSuccess;  // never recorded
        if (stream->capture && stream->capture != event->capture)
            return told(broken(*stream->capture, cudaErrorStreamCaptureIsolation));
        if (event->capture) return told(wait_captured(*stream, *event));
        point = event->point;
    }
    return point ? told(stream->add([point] { point->wait(); })) : cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    *event = new CUevent_st{};
    (*event)->device = current_device();
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event || !stream || event->device != stream->device) return told(cudaErrorInvalidResourceHandle);
    if (planted("wait_in_capture") && begun && !begun->ended) cudaStreamSynchronize(stream);
    const auto point = std::make_shared<Point>();
    {
        const std::lock_guard lock(captures());
        event->capture = stream->capture;
        event->point = stream->capture ? nullptr : point;
        event->frontier = stream->frontier;
        if (stream->capture) return told(stream->capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    }
    if (planted("early_event")) return point->set(), cudaSuccess;
    return told(stream->add([point] { point->set(); }));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!event) return told(cudaErrorInvalidResourceHandle);
    std::shared_ptr<Point> point;
    if (const cudaError_t status = point_of(event, point); status != cudaSuccess) return told(status);
    return !point || point->done() ? cudaSuccess : cudaErrorNotReady;  // which cudaGetLastError does not report
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event) return told(cudaErrorInvalidResourceHandle);
    std::shared_ptr<Point> point;
    if (const cudaError_t status = point_of(event, point); status != cudaSuccess) return told(status);
    if (point) point->wait();
    return told(fault_of(event->device));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start || !end || !start->timed || !end->timed) return told(cudaErrorInvalidResourceHandle);
    std::shared_ptr<Point> first, last;
    for (const auto& [event, point] : {std::pair(start, &first), {end, &last}}) {
        if (const cudaError_t status = point_of(event, *point); status != cudaSuccess) return told(status);
        if (!*point) return told(cudaErrorInvalidResourceHandle);
        if (!(*point)->done()) return cudaErrorNotReady;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(last->time() - first->time()).count();
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (mode != cudaStreamCaptureModeThreadLocal) return told(cudaErrorNotSupported);
    if (const cudaError_t status = refuse_unsafe(); status != cudaSuccess) return told(status);
    const std::lock_guard lock(captures());
    if (stream->capture) return told(broken(*stream->capture, cudaErrorStreamCaptureUnsupported));
    begun = std::make_shared<Capture>();
    begun->owner = std::this_thread::get_id();
    begun->origin = stream;
    begun->streams = {stream};
    begun->graph.lanes = 1;
    stream->capture = begun;
    stream->frontier.clear();
    stream->lane = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    *graph = nullptr;
    const std::lock_guard lock(captures());
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture || capture->origin != stream) return told(cudaErrorStreamCaptureUnmatched);
    if (capture->owner != std::this_thread::get_id()) return told(cudaErrorStreamCaptureWrongThread);
    capture->ended = true;
    begun = nullptr;
    const std::vector<size_t> end = stream->frontier;
    bool all = true;
    for (CUstream_st* one : capture->streams) {
        all = all && joined(capture->graph, end, one->frontier);
        one->capture = nullptr;
        one->frontier.clear();
    }
    const Graph made = std::exchange(capture->graph, {});
    if (capture->broken) return told(cudaErrorStreamCaptureInvalidated);
    if (!all) return told(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{std::make_shared<const Graph>(made)};
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    if (!stream) return told(cudaErrorInvalidResourceHandle);
    const std::lock_guard lock(captures());
    *status = !stream->capture          ? cudaStreamCaptureStatusNone
              : stream->capture->broken ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
    *ready = nullptr;
    if (!graph) return told(cudaErrorInvalidValue);
    *ready = new CUgraphExec_st{graph->graph};
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t ready, cudaStream_t stream) {
    return told(ready && stream ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
    if (!ready || !stream) return told(cudaErrorInvalidValue);
    if (const cudaError_t status = refuse_captured(*stream); status != cudaSuccess) return told(status);
    return told(stream->add([graph = ready->graph] { graph->run(); }));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
    delete ready;
    return cudaSuccess;
}

}  // extern "C"
