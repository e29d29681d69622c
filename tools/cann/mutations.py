"""Puts seeded mistakes into plugins/cann/src, one at a time, and sees whether a test on the simulator catches each.

A row of MUTATIONS: a name, a file, a text that is in it once, what stands there instead, and the test to run. The files
are restored after each row, also on Ctrl-C. A test that fails, crashes or hangs has caught the mistake. Exit code 1 if
one survived, a text is not found once, a mistake does not compile, or a test fails without one. Not part of CI: each row
builds the plugin again.

    python3 tools/cann/mutations.py [PART_OF_A_NAME…]
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "plugins/cann/src"
# Seconds for one row, building included.
LIMIT = 300

# Not here, because no test can distinguish them: a stream that forgets its fault, because the host leaves
# the card out by itself; the direction that is passed to a copy, because the runtime goes by the addresses;
# a stream destroyed without its context, because the kit waits for it first; a sign left out where four bits remain.
# Nor, because no test sees them for certain: a capture in the mode that other threads disturb, and one that is not ended
# after an error.

MUTATIONS = [
    # Streams, events, copies.
    ("a wait that waits for nothing", "stream.rs",
     "let done = unsafe { acl!(self.runtime, aclrtSynchronizeStream(self.raw)) };", "let done: Result<()> = Ok(());",
     "plans the_plan_unused"),
    ("a copy between streams without waiting for the event", "stream.rs",
     "self.event_wait(&done)?;", "", "source_document ca_21"),
    ("the event of a copy recorded on the wrong stream", "stream.rs",
     "from.event_record(&done)?;", "self.event_record(&done)?;", "source_document ca_21"),
    ("the event of a copy destroyed before it was reached", "stream.rs",
     "self.kept.push(done);", "drop(done);", "source_document ca_21"),
    ("a blocking copy in place of a refused one, without a wait", "stream.rs",
     "self.synchronize()?;\n                // SAFETY: as above.", "// SAFETY: as above.", "errors plain_memory"),
    ("access between cards not enabled", "peers.rs",
     "acl!(self, aclrtDeviceEnablePeerAccess(peer, 0))", "{ let _ = peer; Ok(()) }", "simulated bytes_go"),
    ("access of one card only", "peers.rs", "[(a, b), (b, a)]", "[(a, b)]", "simulated bytes_go"),
    ("access enabled for each copy", "peers.rs", "known.insert((device, peer), open);", "", "simulated bytes_go"),
    ("access that was refused taken for open", "peers.rs", "opened => opened.is_ok(),", "_ => true,",
     "simulated cards_that_do_not"),
    ("locks taken in two orders", "runtime.rs", "drop(contexts);", "", "simulated a_card_may_close"),
    ("a write that always starts at the tensor's first byte", "buffer.rs",
     "self.runtime.upload(self.address(tensor.offset() + off), src)",
     "self.runtime.upload(self.address(tensor.offset() + 0 * off), src)",
     "source_document ca_20"),

    # Contexts and devices.
    ("a fill without the card's context", "buffer.rs",
     "return Ok(());\n        }\n        self.runtime.enter(self.device)?;\n        // SAFETY: the host checked the range, "
     "and no work uses it.\n        unsafe {\n            acl!(",
     "return Ok(());\n        }\n        // SAFETY: the host checked the range, and no work uses it.\n        unsafe {\n"
     "            acl!(",
     "simulated every_call"),
    ("a wait for an event without the card's context", "event.rs",
     "fn wait(&self, timeout: Duration) -> Result<bool> {\n        self.runtime.enter(self.device)?;",
     "fn wait(&self, timeout: Duration) -> Result<bool> {", "simulated every_call"),
    ("memory freed without the card's context", "buffer.rs",
     "if self.runtime.enter(self.device).is_ok() {", "{", "simulated every_call"),
    ("every card takes the number of the first", "lib.rs", "number as i32, &soc", "(number * 0) as i32, &soc",
     "source_document ca_19"),
    ("a card that is closed and not reset", "runtime.rs",
     "let _ = unsafe { acl!(self, aclrtResetDevice(device)) };", "", "source_document ca_19"),
    ("scratch memory of the first card for all", "memory.rs",
     "id: self.device as u32", "id: 0 * self.device as u32", "errors scratch_memory_is_the_cards_own"),

    # Memory.
    ("an intermediate result freed at once", "call.rs", "self.pieces.push(piece);",
     "if let Some(scratch) = &mut self.stream.scratch { scratch.free(piece) }", "cases norms"),
    ("an intermediate result freed before the workspace is taken", "call.rs", "_ => self.scratch(size)",
     "_ => { self.free_from(self.pieces.len().saturating_sub(1)); self.scratch(size) }", "cases norms"),
    ("half a workspace", "call.rs", "launch(workspace, size, executor, self.stream.raw)",
     "launch(workspace, size / 2, executor, self.stream.raw)", "cases norms"),
    ("no workspace", "call.rs", "_ => self.scratch(size)", "_ => Ok(std::ptr::null_mut())", "cases norms"),
    ("a buffer without the bytes that units read past its end", "device.rs",
     "stored.max(tensor.nbytes()).next_multiple_of(32) + 32", "stored.max(tensor.nbytes())", "weights sealed"),
    ("a sealed weight's buffer of the file's size", "device.rs",
     "layout::of_weight(tensor).map_or(0, |layout| layout.stored_bytes)",
     "layout::of_weight(tensor).map_or(0, |_| 0)", "weights sealed"),
    ("pages of another size than the driver's", "memory.rs",
     "granularity: 2 << 20", "granularity: 64 << 10", "errors scratch_memory_is_the_cards_own"),
    ("pages unmapped and not freed", "memory.rs",
     "let _ = acl!(self.runtime, aclrtFreePhysical(page as aclrtDrvMemHandle));", "let _ = page;",
     "errors scratch_memory_is_the_cards_own"),

    ("addresses reserved without a size of pages", "memory.rs", "match self.reserve(size, HUGE_PAGES) {",
     "match self.reserve(size, NO_FLAGS) {", "errors addresses_are"),
    ("addresses with a size of pages only", "memory.rs",
     "Err(e) if e.status != Status::OomDevice => self.reserve(size, NO_FLAGS),", "", "errors addresses_are"),
    ("the page that was tried left mapped", "memory.rs", "self.unmap(addr, page);",
     "let _ = page;", "errors addresses_are"),

    # The vendor's objects.
    ("the offset counted twice", "operand.rs", "true => (first.cast(), 0),", "true => (first.cast(), self.offset),",
     "cases rows_are_picked"),
    ("tensors at multiples of 16", "operand.rs", "first.addr().is_multiple_of(32)", "first.addr().is_multiple_of(16)",
     "cases rows_are_picked"),
    ("strides in bytes", "operand.rs",
     "stride: elements[..4].to_vec(),", "stride: t.nb().map(|nb| nb as i64).to_vec(),", "cases norms"),
    ("an offset in bytes", "operand.rs", "offset: elements[4],", "offset: t.offset() as i64,",
     "cases rows_are_picked"),
    ("dims not turned around", "call.rs", "v.iter().rev().copied()", "v.iter().copied()", "cases norms"),
    ("tensors destroyed before their operator is launched", "call.rs",
     "// SAFETY: the executor was planned just now, with objects that live to the end of this call; the workspace has",
     "{\n let runtime = self.stream.runtime.clone();\n for object in self.objects.drain(..) {\n"
     " unsafe { object.destroy(&runtime.cann.object) };\n }\n }\n // SAFETY: x", "simulated a_graph_run"),
    ("tensors of a list destroyed twice", "call.rs", "self.objects.truncate(first);", "let _ = first;",
     "cases rows_are_picked"),
    ("tensors that are never destroyed", "call.rs", "for object in self.objects.drain(..).rev() {",
     "for object in self.objects.drain(..).rev().take(0) {", "simulated a_graph_run"),

    # Plans.
    ("an executor launched again that was not made repeatable", "plan.rs",
     "library.aclSetAclOpExecutorRepeatable.map(|f| unsafe { f(*executor) });",
     "library.aclSetAclOpExecutorRepeatable.map(|_| ACL_SUCCESS);", "plans where_nothing"),
    ("an executor kept that the library refused to repeat", "plan.rs",
     "            code == Some(ACL_SUCCESS)\n", "            true\n", "plans a_step"),
    ("an executor that was refused and not destroyed", "plan.rs", "destroy(library, *executor);", "", "plans a_step"),
    ("a plan's tensors destroyed when it is made", "call.rs",
     "return recording.objects.append(&mut self.objects);", "let _ = recording;", "plans where_nothing"),
    ("executors that are never destroyed", "plan.rs", ".for_each(|executor| destroy(library, executor));",
     ".for_each(|_| {});", "plans where_nothing"),
    ("a captured graph launched after its addresses changed", "plan.rs",
     "*self = CardPlan { steps, slot: Arc::default() };", "self.steps = steps;", "plans a_plan_goes"),

    # Errors and claims.
    ("a kernel's fault that reaches no farther than its call", "error.rs",
     "507000..=507899 => (Status::Internal, Scope::Device),", "507000..=507899 => (Status::Internal, Scope::Call),",
     "errors a_kernels_fault"),
    ("errors without the vendor's words", "error.rs",
     'recent_message(acl).map_or(String::new(), |text| format!(": {text}"))',
     'recent_message(acl).map_or(String::new(), |_| String::new())', "errors a_kernels_fault"),
    ("out of memory as some error", "error.rs",
     "ACL_ERROR_RT_MEMORY_ALLOCATION | ACL_ERROR_RT_DEVICE_OOM => (Status::OomDevice, Scope::Call),", "",
     "errors memory_that"),
    ("out of memory without bytes", "runtime.rs", "bytes: Some((size, ", "bytes: Some((0 * size, ",
     "errors memory_that"),
    ("softmax claimed without its operator", "ops/soft_max.rs", "has!(cann, nn.aclnnSoftmax, ", "has!(cann, ",
     "claims nothing_is_claimed"),
    ("a norm claimed without its operator", "ops/rms_norm.rs", "if has!(cann, nn.aclnnRmsNorm).is_err() {", "if false {",
     "claims nothing_is_claimed"),
    ("BF16 on a 310P", "chip.rs", "Family::P310 => Chip {", "Family::P310 => Chip { bf16: true,",
     "claims the_table"),
    ("operators of an A2 on a 310P", "chip.rs", "Chip { lacks: &OF_A2,", "Chip { lacks: &[],", "claims the_table"),
    ("F32 products on the first 910", "chip.rs", "let older = Chip { bf16: false, f32_products: false,",
     "let older = Chip { bf16: false, f32_products: true,", "pairs every"),

    ("a first phase's refusal that ends the graph", "error.rs",
     "(Status::Invalid | Status::Internal, Scope::Call) => (Status::Unsupported, Scope::Call),", "",
     "cases what_an_operator"),
    ("a refusal that ends the node", "call.rs", "Err(e) if is_refusal(&e) => {", "Err(e) if false && is_refusal(&e) => {",
     "cases what_an_operator"),
    ("operators of a refused way left in the plan", "call.rs", "recording.truncate(n_steps);", "",
     "plans a_plan_has_nothing"),
    ("a workspace that is too small when planned again", "call.rs", "if size > step.size {", "if false {",
     "plans a_step_that_requests_more"),
    ("a larger workspace that others may use", "call.rs",
     "let mut larger = step.larger.borrow_mut();",
     "workspace = self.scratch(size)?;\n            let mut larger = step.larger.borrow_mut();\n"
     "            larger.clear();\n            return self.second(step.name, step.launch, (workspace, size), executor);",
     "plans a_step_that_requests_more"),
    ("a card waited for while another thread captures", "memory.rs", "let _quiet = self.runtime.captures.lock();", "",
     "plans captures_are_not_disturbed"),
    ("single queries of shared heads on a 310P", "ops/attention_fused.rs",
     "let alone = a.q.ne[1] == i64::from(a.p.n_kv_heads) && is_for_tokens", "let alone = is_for_tokens",
     "cases attention_sees"),

    # Numbers.
    ("Q4_0 experts without offsets", "ops/grouped.rs", "=> (list(&scales)?, list(&offsets)?),",
     "=> { let _ = &offsets; (list(&scales)?, none) }", "cases experts_go"),
    ("a sort of one number", "ops/grouped.rs", "if numbers.ne == [1] {", "if numbers.ne == [0] {", "cases one_expert"),
    ("F16 products whose rows the operator rounds", "ops/product.rs",
     "let x = call.cast(x, ACL_FLOAT16)?;\n                call.product_as(w, &x, y, KEEP)",
     "call.product_as(w, x, y, TO_F16)", "cases limits"),
    ("BF16 products without the rest of the rows", "ops/product.rs",
     "call.add(&sums.slice(1, 0, n), &sums.slice(1, n, n), y)", "call.copy(&sums.slice(1, 0, n), y)",
     "cases bf16"),
    ("BF16 products with BF16 results", "ops/product.rs", "let sums = call.temporary(ACL_FLOAT, &columns(y))?;",
     "let sums = call.temporary(ACL_BF16, &columns(y))?;", "cases bf16"),
    ("a mask that hides what is to be seen", "ops/paging.rs", "call.affine(x, -1.0, 1.0, &turned)?;",
     "call.affine(x, 1.0, 0.0, &turned)?;", "cases attention_sees"),
    ("attention to half of the keys", "ops/attention_fused.rs", "let lens = vec![p.capacity(); n as usize];",
     "let lens = vec![p.capacity() / 2; n as usize];", "cases decodes"),
    ("rows for ids outside", "ops/set_rows.rs", "call.mul(&slot, &valid, &slot)?;", "", "cases rows_are_picked"),
    ("the even element in the high nibble", "layout.rs", "v[0] as u8 & 15 | (v[1] as u8) << 4",
     "v[1] as u8 & 15 | (v[0] as u8) << 4", "weights sealed"),
    ("a sealed weight read as it is stored", "buffer.rs",
     "let canonical = layout::restore(tensor, &self.stored(tensor)?)?;",
     "let mut canonical = self.stored(tensor)?;\n            canonical.resize(tensor.nbytes() as usize, 0);",
     "weights sealed"),
    ("scales in the other order of dims", "ops/weights.rs", "let scales = turned(&w.scales);",
     "let scales = w.scales.reshape(&[w.scales.ne[1], w.scales.ne[0]]);", "weights products"),
    ("a group of 64", "ops/weights.rs", "if w.k() > GROUP as i64 { GROUP as i32 } else { 0 }",
     "if w.k() > GROUP as i64 { 2 * GROUP as i32 } else { 0 }", "weights products"),
    ("a group for a row of one group", "ops/weights.rs", "if w.k() > GROUP as i64 { GROUP as i32 } else { 0 }",
     "GROUP as i32", "weights products"),
    ("products in groups past the operator's limit", "ops/weights.rs", "const MAX_ROW: i64 = 65_535;",
     "const MAX_ROW: i64 = 1 << 20;", "weights products"),
    ("F32 products rounded to F16", "ops/product.rs", "_ => self.product_as(w, x, y, KEEP),",
     "_ => self.product_as(w, x, y, TO_F16),", "weights f32"),
    ("the weight of a product not turned around", "ops/product.rs", "axes.swap(0, 1);", "axes.swap(0, 0);",
     "weights f32"),
    ("a norm without its epsilon", "ops/rms_norm.rs", "rms_norm(call, &x, &w, eps, &y)",
     "rms_norm(call, &x, &w, 0.0 * eps, &y)", "cases norms"),
    ("softmax over the outermost dim", "ops/steps.rs", "nn.aclnnSoftmax(x, -1, y)", "nn.aclnnSoftmax(x, 0, y)",
     "cases norms"),
    ("heads turned the other way", "ops/rope.rs", "call.sub(&one, &other, &to_a)?;",
     "call.add(&one, &other, &to_a)?;", "cases heads"),
    ("pairs of neighbours for pairs of halves", "ops/rope.rs", "if in_halves { 0 } else { 1 }",
     "if in_halves { 1 } else { 0 }", "cases heads"),

    # Collectives.
    ("all cards' calls on one thread", "hccl.rs", "worker.run(Box::new(move || {",
     "let _ = worker;\n            self.workers[0].run(Box::new(move || {", "collectives sums_rows"),
    ("a call without the card's context", "hccl.rs", "let called = runtime.enter(end.card).and_then(|()| {",
     "let called = Ok(()).and_then(|()| {", "collectives sums_rows"),
    ("sums in any order", "hccl.rs", "f(HCCL_DETERMINISTIC, 1)", "f(HCCL_DETERMINISTIC, 0)",
     "collectives sums_repeat"),
    ("rows left as the library puts them", "hccl.rs", "call.copy(&all.permute(&[0, 2, 1]), &y)",
     "call.copy(&all.reshape(&[width, n, rows]), &y)", "collectives sums_rows"),
    ("a copy to all that is always the first card's", "hccl.rs",
     "f(at.send, n, HCCL_DATA_TYPE_INT8, root as u32, comm, at.stream)",
     "f(at.send, n, HCCL_DATA_TYPE_INT8, 0 * root as u32, comm, at.stream)", "collectives sums_rows"),
    ("a copy to all without zeros where there is none", "hccl.rs",
     "unsafe { acl!(self.runtime, aclrtMemsetAsync(at.recv, n, 0, n, at.stream))? };", "let _ = (n, at);",
     "collectives sums_rows"),
    ("a copy to all that a 310P lacks", "chip.rs", "Chip { lacks: &OF_A2, peers: false, broadcast: false,",
     "Chip { lacks: &OF_A2, peers: false, broadcast: true,", "collectives sums_rows"),
    ("a card that fails leaves the others waiting", "hccl.rs", "failed = Some(e.scope(Scope::Stream));\n"
     "                self.stop(buffers);", "failed = Some(e.scope(Scope::Stream));", "collectives a_card_that_fails"),
    ("streams that wait for a card that failed go on waiting", "hccl.rs",
     "let _ = unsafe { acl!(self.runtime, aclrtStreamAbort(at.stream)) };", "let _ = at;",
     "collectives a_card_that_fails"),
    ("a communicator that is never destroyed", "hccl.rs",
     "fn drop(&mut self) {\n        self.cards.iter().for_each(|end| self.destroy(end));",
     "fn drop(&mut self) {", "collectives a_group_gives"),
    ("a part of a library of communicators not looked for", "library.rs", '"libhcomm.so")', '"libhccl.so")',
     "collectives every_release"),
]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [row for row in MUTATIONS if not sys.argv[1:] or any(part in row[0] for part in sys.argv[1:])]
    if git("status", "--porcelain", "--", "plugins/cann"):
        print("plugins/cann has changes: commit them first, because its files are rewritten and restored")
        return 1
    problems = [problem for problem in map(misplaced, rows) if problem]
    # What fails anyway proves nothing.
    tests = list(dict.fromkeys(row[4] for row in rows)) if not problems else []
    problems += [f"`{test}` is {found} without a mistake" for test in tests if (found := outcome(test)) != "SURVIVED"]
    if problems:
        print("\n".join(problems))
        return 1
    results = [apply(*row) for row in rows]
    n_caught = sum(result.startswith("caught") for result in results)
    print(f"{n_caught} of {len(rows)} caught")
    return 0 if n_caught == len(rows) else 1


def misplaced(row):
    name, file, text, _, _ = row
    n = (SRC / file).read_text().count(text)
    return None if n == 1 else f"{name}: the text is {n} times in {file}, expected once"


def apply(name, file, text, replacement, test):
    """The result of a test with a mistake in."""
    path = SRC / file
    before = path.read_text()
    try:
        path.write_text(before.replace(text, replacement))
        result = outcome(test)
    finally:
        path.write_text(before)
    print(f"{result:18} {name}: {file}, `{test}`", flush=True)
    return result


def outcome(test):
    """What became of `TARGET FILTER`: caught and how, SURVIVED, or why it is inconclusive."""
    target, of = test.split()
    command = ["cargo", "test", "-p", "llmrt-cann", "--test", target, of]
    # A group of its own: a test that hangs is not cargo itself.
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )
    try:
        output, hangs = child.communicate(timeout=LIMIT)[0], False
    except subprocess.TimeoutExpired:
        hangs = True
        os.killpg(child.pid, signal.SIGKILL)
        output = child.communicate()[0]
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    if not re.search(r"^running [1-9]\d* tests?$", output, re.M):
        return "NO SUCH TEST" if "running 0 tests" in output else "DOES NOT COMPILE"
    if hangs:
        return "caught: hangs"
    if child.returncode == 0:
        return "SURVIVED"
    return "caught" if "test result: FAILED" in output else "caught: crashes"


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
