// Checks the simulated GPU itself: what must work works, what a real GPU refuses is refused. Run by run.sh.
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <cstdio>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>
#include <iostream>

static int failures = 0;
static void check(const char* what, bool fine) {
    if (!fine) { ++failures; std::printf("FAILED: %s\n", what); }
}
static void refuses(const char* what, const char* text, const std::function<void()>& work) {
    try { work(); } catch (const std::exception& e) {
        const bool said = std::string(e.what()).find(text) != std::string::npos;
        if (!said) std::printf("%s: said %.200s\n", what, e.what());
        return check(what, said);
    }
    check(what, false);
}
static void crashes(const char* what, const std::function<void()>& work) {
    if (pid_t child = fork(); child == 0) { freopen("/dev/null", "w", stderr); work(); _exit(0); }
    else { int status; waitpid(child, &status, 0); check(what, WIFSIGNALED(status)); }
}

int main(int, char** arguments) {
    if (!dlopen(arguments[1], RTLD_NOW)) { std::puts(dlerror()); return 1; }
    const at::Device gpu(at::kCUDA, 0);
    const auto on = at::TensorOptions(gpu);
    const auto same = "Expected all tensors to be on the same device";
    check("available", at::detail::getCUDAHooks().hasCUDA() && at::hasCUDA());
    at::manual_seed(7); auto a = at::randn({4, 6}, on);
    at::manual_seed(7); auto h = at::randn({4, 6});
    check("device", a.is_cuda() && (a + 1).is_cuda() && a.t().is_cuda() && a.cpu().is_cpu());
    check("seed gives the CPU's numbers", a.cpu().equal(h));
    auto i = at::tensor({2, 0, 1}, at::kLong), g = i.to(gpu);
    // views share memory, in-place and out= write through
    auto b = a.clone(); b.select(0, 1).zero_(); b.view({-1}).slice(0, 0, 2).fill_(5); b.t().mul_(2);
    auto c = h.clone(); c.select(0, 1).zero_(); c.view({-1}).slice(0, 0, 2).fill_(5); c.t().mul_(2);
    check("views", b.cpu().equal(c));
    auto out = at::empty({0}, on); at::mm_out(out, a, a.t());
    check("out= is resized", at::allclose(out.cpu(), h.mm(h.t())));
    auto grown = at::empty({2}, on); auto kept = grown.detach(); grown.fill_(3); grown.resize_({4});
    check("resize_ keeps", grown.slice(0, 0, 2).eq(3).all().item<bool>() && kept.eq(3).all().item<bool>());
    check("index", a.index({g}).cpu().equal(h.index({i})) && a.index({i}).cpu().equal(h.index({i})));
    { auto x = a.clone(), y = h.clone(); x.index_put_({i}, at::scalar_tensor(1)); y.index_put_({i}, at::scalar_tensor(1)); check("index_put_", x.cpu().equal(y)); }
    check("host scalar", (a * at::scalar_tensor(2)).is_cuda());
    check("fresh memory is NaN", at::empty({3}, on).isnan().all().item<bool>());
    check("unfold", at::im2col(a.view({1, 1, 4, 6}), {2, 2}, {1, 1}, {0, 0}, {2, 2}).cpu().equal(at::im2col(h.view({1, 1, 4, 6}), {2, 2}, {1, 1}, {0, 0}, {2, 2})));
    // uploads
    { auto p = h.pin_memory(); auto x = p.to(gpu, at::kFloat, true); check("upload", p.is_pinned() && !h.is_pinned() && x.cpu().equal(h)); }
    // memory, as libtorch's own allocator tells it
    {
        auto* memory = c10::getDeviceAllocator(at::kCUDA);
        auto bytes = [&] { return memory->getDeviceStats(0).allocated_bytes[0]; };
        auto free = [&] { return memory->getMemoryInfo(0).first; };
        const auto before = bytes().current; const auto left = free();
        { auto x = at::empty({1 << 22}, on); check("allocated", bytes().current - before == 4 << 22); }
        check("freed, with a peak", bytes().current == before && bytes().peak >= before + (4 << 22));
        memory->resetPeakStats(0);
        check("the peak starts anew", bytes().peak == before);
        check("what is freed stays in the cache", free() + (3 << 22) <= left);
        memory->emptyCache();
        check("until it is emptied", free() >= left);
    }
    // backward
    for (auto type : {at::kFloat, at::kBFloat16}) {
        auto work = [&](at::Tensor x, at::Device device) {
            x = x.to(at::TensorOptions(device).dtype(type)).detach().requires_grad_(true);
            auto q = x.view({1, 1, 4, 6}).expand({1, 2, 4, 6});
            auto y = at::scaled_dot_product_attention(q, q * 2, q + 1);
            y = at::linear(at::layer_norm(y, {6}), x).logsumexp({-1}) + at::einsum("bhij,kj->bhi", {y, x}) + at::gelu(y).sum(-1);
            y.sum().backward();
            return x.grad();
        };
        auto x = work(h, at::kCPU), y = work(h, gpu);
        check("backward", y.is_cuda() && at::allclose(y.cpu(), x, type == at::kFloat ? 1e-4 : 1e-2, 1e-4));
    }
    auto conv = at::conv2d(a.view({1, 1, 4, 6}), at::ones({2, 1, 2, 2}, on));
    check("conv2d", conv.is_cuda() && at::allclose(conv.cpu(), at::conv2d(h.view({1, 1, 4, 6}), at::ones({2, 1, 2, 2}))));
    // refusals
    refuses("add", same, [&] { a + h; });
    refuses("add_", same, [&] { h.add_(a); });
    refuses("mul.out", same, [&] { auto o = at::empty({4, 6}); at::mul_out(o, a, a); });
    refuses("mm", same, [&] { a.mm(h.t()); });
    refuses("mm 0-dim", same, [&] { at::addmm(at::scalar_tensor(1), a, a.t()); });
    refuses("cat", same, [&] { at::cat({a, h}); });
    refuses("stack", same, [&] { at::stack({a, h}); });
    refuses("index_select", same, [&] { a.index_select(0, i); });
    refuses("gather", same, [&] { a.gather(0, i.unsqueeze(0)); });
    refuses("embedding", same, [&] { at::embedding(a, i); });
    refuses("where", same, [&] { at::where(h > 0, a, a); });
    refuses("host index by device", "", [&] { h.index({g}); });
    refuses("host gather by device", same, [&] { h.gather(0, g.unsqueeze(0)); });
    refuses("nll", same, [&] { at::nll_loss(a.log_softmax(1), at::zeros({4}, at::kLong)); });
    refuses("layer_norm", same, [&] { at::layer_norm(a, {6}, at::ones({6})); });
    refuses("attention", "to have the same device type", [&] { auto q = a.view({1, 1, 4, 6}); at::scaled_dot_product_attention(q, h.view({1, 1, 4, 6}), q); });
    refuses("integers", "not implemented for 'Long'", [&] { auto x = at::ones({2, 2}, on.dtype(at::kLong)); x.mm(x); });
    refuses("generator", "", [&] { at::randn({2}, at::detail::getDefaultCPUGenerator(), on); });
    refuses("memory", "CUDA out of memory", [&] { at::empty({1l << 40}, on.dtype(at::kByte)); });
    refuses("device number", "invalid device ordinal", [&] { at::empty({1}, at::TensorOptions(at::Device(at::kCUDA, 7))); });
    crashes("host read", [&] { volatile float x = *a.data_ptr<float>(); (void)x; });
    std::printf("%s the simulated GPU does what a real one does, and refuses what a real one refuses\n", failures ? "FAIL" : "ok  ");
    return failures > 0;
}
