#!/usr/bin/env python3
"""Reads from the PTX of compiled kernels what `KernelContract` says that they do: every path to a post is behind a full bulk wait or a
barrier, posts release and looks acquire at device scope, a proxy fence lies between a look and the word that lets bulk copies go on.

    python3 xtask/practice.py            compiles a small kernel of each family, judges it, and judges mutants of its PTX, each of which must
                                         be caught: inline assembly reaches the PTX unchanged
    python3 xtask/practice.py --mutants  judges mutants of csrc too; with words, those whose name contains one

Compilers do not move what is volatile and clobbers memory past each other, so the order in the PTX is that of the machine code."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".toolchain"

# A small kernel of each family: what build.rs would make of a line of csrc/abi/instances.txt.
KERNELS = {
    "ampere": "gemm_sm80<CUSYNC_F16, 64, 128, 4, 1, 1, CUSYNC_GEMM>",
    "gemm": "gemm_sm90<CUSYNC_F16, 64, 128, 8, 1, 1, CUSYNC_GEMM>",
    "chain": "chain_sm90<CUSYNC_F16, 64, 256, 5, 1, 1, CUSYNC_GEMM>",
    "norm": "chain_sm90<CUSYNC_F16, 128, 128, 6, 1, 1, CUSYNC_GEMM, CUSYNC_NORM>",
    "conv": "chain_sm90<CUSYNC_F16, 64, 64, 12, 1, 1, CUSYNC_CONV2D>",
    "turned": "chain_sm90<CUSYNC_F16, 256, 64, 12, 1, 1, CUSYNC_CONV2D>",
    "decode": "decode_sm90<CUSYNC_F16, 64, 64, 0, 1, 1, CUSYNC_GEMM>",
    "attend": "decode_sm90<CUSYNC_F16, 64, 8, 0, 1, 1, CUSYNC_GEMM, CUSYNC_GATED_GEMM, CUSYNC_NORM, CUSYNC_ATTEND>",
}


@cache
def ptx_of(kernel, csrc=ROOT / "csrc"):
    """The PTX of a kernel."""
    call = KERNELS[kernel]
    operations = [word.lower() for word in re.findall(r"CUSYNC_(\w+)", call)[1:]]
    family, arch = re.match(r"(\w+)_(sm\d+)", call).groups()
    headers = [f"kernels/{of}/{arch}/operation.cuh" for of in operations]
    headers = [header for header in headers if (csrc / header).exists()]
    headers.append(f"kernels/{family}/{arch}/launch.cuh")
    cutlass = TOOLS / "cutlass_library/source"
    with tempfile.TemporaryDirectory() as scratch:
        source, out = Path(scratch) / "kernel.cu", Path(scratch) / "kernel.ptx"
        source.write_text(
            "".join(f'#include "{header}"\n' for header in headers)
            + f"namespace cusync::kernels {{ KernelTable kernel() {{ return {call}(); }} }}\n")
        command = [TOOLS / "nvidia/cu13/bin/nvcc", "-ptx", "-std=c++17", "-O3", "--expt-relaxed-constexpr",
                   "--expt-extended-lambda", "-DNDEBUG", "-DCUTLASS_ENABLE_GDC_FOR_SM90=1",
                   *(["-DCUSYNC_BUILD_SM90A=1", "-arch=sm_90a"] if arch == "sm90" else ["-DCUSYNC_BUILD_SM80=1", "-arch=sm_80"]),
                   "-o", out, source]
        for include in (csrc, csrc / "include", cutlass / "include", cutlass / "tools/util/include"):
            command += ["-I", include]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{kernel} does not compile:\n{done.stderr}")
        return out.read_text()


class Step:
    """An instruction, and the places where it may go on."""

    def __init__(self, text):
        self.text, self.next = text, []
        words = text.split()
        self.guarded = words[0].startswith("@")
        self.op = words[1] if self.guarded else words[0]
        self.rest = text.split(self.op, 1)[1]


def bodies(ptx):
    """The entries of a PTX file: names and texts between their braces."""
    ptx = re.sub(r"//[^\n]*", "", ptx)
    for found in re.finditer(r"\.entry\s+(\w+)\s*\(", ptx):
        begin = ptx.index("{", found.end())
        depth = at = 0
        for brace in re.finditer(r"[{}]", ptx[begin:]):
            depth += 1 if brace.group() == "{" else -1
            if not depth:
                at = begin + brace.end()
                break
        yield found.group(1), ptx[begin + 1: at - 1]


def steps(body):
    """Instructions with their successors. Labels of inline assembly count inside their braces only."""
    list_, labels, scopes, jumps, tables = [], {}, [0], [], {}
    count = 0
    operands = re.compile(r"\{[^{};]*\}")  # vectors in braces are operands
    body = operands.sub(lambda m: m.group().replace("{", "<").replace("}", ">") if "," in m.group() or "%" in m.group() else m.group(), body)
    for token in re.findall(r"[{}]|[\w$]+:(?!:)|[^;{}]+;", body):
        token = token.strip()
        if token == "{":
            count += 1
            scopes.append(count)
        elif token == "}":
            scopes.pop()
        elif token.endswith(":"):
            labels[(scopes[-1], token[:-1])] = len(list_)
        else:
            while (label := re.match(r"([\w$]+):(?!:)\s*", token)):
                labels[(scopes[-1], label.group(1))] = len(list_)
                token = token[label.end():]
            text = token.rstrip(";").strip()
            if not text:
                continue
            if ".branchtargets" in text:
                tables[len(list_)] = [t.strip() for t in text.split(".branchtargets")[1].split(",")]
                continue
            if text.startswith("."):
                continue
            step = Step(text)
            if step.op.startswith("bra"):
                jumps.append((len(list_), tuple(scopes), [step.rest.strip()]))
            elif step.op.startswith("brx"):
                jumps.append((len(list_), tuple(scopes), None))
            list_.append(step)
    targets = {}
    for at, inside, names in jumps:
        names = names if names is not None else [n for t in tables.values() for n in t]
        for name in names:
            for scope in reversed(inside):
                if (scope, name) in labels:
                    targets.setdefault(at, []).append(labels[(scope, name)])
                    break
            else:
                raise SystemExit(f"no label {name}")
    for at, step in enumerate(list_):
        ends = step.op.split(".")[0] in ("ret", "exit", "trap", "bra", "brx") and not step.guarded
        step.next = targets.get(at, []) + ([] if ends else [at + 1] if at + 1 < len(list_) else [])
    return list_


# What may be so on some path.
BULK, PLAIN, LOOKED, WIDE, EARLY = 1, 2, 4, 8, 16


def after(step, facts, family):
    op = step.op
    if op.startswith("cp.async.bulk") and ".global.shared" in op or op.startswith("cp.reduce.async.bulk") and ".global" in op:
        facts |= BULK
    elif op == "cp.async.bulk.wait_group" and step.rest.strip() == "0" and not step.guarded:
        facts &= ~BULK
    elif op.startswith("st.global") or re.match(r"st(\.v[24])?\.[bfsu]\d+$", op):  # without a space: wherever it points
        # Slabs, which are stored past the first cache, are read by plain loads.
        facts |= PLAIN | (WIDE if ".v4" in op and ".cg" not in op else 0)
    elif op == "bar.warp.sync" and not step.guarded:
        facts &= ~PLAIN if family in ("conv", "turned") else ~0  # of a convolution one warp stores and posts
    elif op == "griddepcontrol.wait" and not step.guarded:
        facts &= ~EARLY
    elif (op.startswith("bar.sync") or op.startswith("barrier.sync") or op.startswith("barrier.cta.sync")) and not step.guarded:
        facts &= ~PLAIN
        facts &= ~LOOKED if family == "ampere" else ~0  # its loads are the threads' own
    elif op.startswith("ld.acquire.gpu.global"):
        facts |= LOOKED
    elif op in ("fence.proxy.async", "fence.proxy.async.global") and not step.guarded:
        facts &= ~(LOOKED | WIDE)
    return facts


def practice(name, body, family):
    """What is wrong with an entry, as sentences; and how many posts and looks it makes."""
    list_ = steps(body)
    facts = [None] * len(list_)
    open_ = [(0, EARLY)]
    while open_:
        at, new = open_.pop()
        if facts[at] is not None and facts[at] | new == facts[at]:
            continue
        facts[at] = new | (facts[at] or 0)
        out = after(list_[at], facts[at], family)
        open_ += [(n, out) for n in list_[at].next]
    faults, posts, looks = [], 0, 0
    unfenced = []
    words = {"flag": 0, "word": 0, "read": 0, "waits": 0, "count": 0, "copies": 0}
    for step, known in zip(list_, facts):
        op = step.op
        if known is None:
            continue
        adds = re.match(r"red\.(?!.*shared)(.*)add\.u32$", op)
        counts = re.match(r"atom\.(?!.*shared)(.*)add\.u32$", op)
        if adds:
            posts += 1
            if not re.match(r"red\.release\.gpu\.global\.add\.u32$", op):
                faults.append(f"a post is `{op}`, no release at device scope")
        if counts:
            words["count"] += 1
            if op != "atom.acq_rel.gpu.global.add.u32":
                faults.append(f"parts of a tile are counted by `{op}`, no acquire and release at device scope")
            # Workers that items are mailed to count who is asleep, which is about no data.
            if known & PLAIN and "Mailed" not in name:
                faults.append("a count may overtake the part that it counts: no barrier lies between")
        # A ring stage is given back by an arrival that could be another CTA's; no post follows from it.
        if re.match(r"mbarrier\.arrive\.(?!.*cluster)", op) and family == "norm" and known & WIDE:
            faults.append("rows may be posted before bulk copies can see them: no proxy fence lies between")
        if family in ("decode", "attend") and known & EARLY and (adds or counts or op.startswith("ld.acquire.gpu")):
            faults.append(f"`{op}` does not wait for the run before")
        if re.match(r"ld\.(relaxed|volatile|acquire)\.?.*u32", op) and ".sys" not in op and ".shared" not in op:
            looks += 1
            if op != "ld.acquire.gpu.global.u32":
                faults.append(f"a look is `{op}`, no acquire at device scope")
        shared_add = re.match(r"atom\.(\w+)\.cta\.shared\.add\.u32", op)
        if adds or shared_add:
            if known & BULK:
                faults.append("a post may overtake a bulk store: no full wait lies between")
            if known & PLAIN and not known & BULK and family in ("ampere", "decode", "attend", "conv", "turned"):
                faults.append("a post may overtake stores: no barrier lies between")
        if shared_add and shared_add.group(1) != "acq_rel":
            faults.append(f"store warps count by `{op}`, which orders nothing")
        if re.match(r"st\.\w+\.gpu\.global\.u32", op):
            words["flag"] += 1
            if not op.startswith("st.release.gpu"):
                faults.append(f"a flag is set by `{op}`, no release")
            if known & PLAIN:
                faults.append("a flag may overtake sums: no barrier lies between")
        if re.match(r"atom\..*cta\.shared\.exch\.b32", op):
            words["word"] += 1
            if ".release." not in op:
                faults.append(f"the word that lets loads go on is set by `{op}`, no release")
            unfenced.append(bool(known & LOOKED))
        if re.match(r"atom\..*cta\.shared\.or\.b32", op):
            words["read"] += 1
            if ".acquire." not in op:
                faults.append(f"the word that lets loads go on is read by `{op}`, no acquire")
        # Of a decode kernel for products plain bulk copies bring weights, which no stage and no job writes, and looks are for commands.
        reads = op.startswith("cp.async.bulk") and ".shared::cluster.global" in op
        if reads and known & LOOKED and (family != "decode" or ".tensor" in op):
            faults.append("a bulk copy may read old data: no proxy fence lies between its thread's look and it")
        if re.match(r"cp\.async\.c[ag]\.shared", op) and family == "ampere":
            words["copies"] += 1
            if known & LOOKED:
                faults.append("copies may overtake another thread's look: no barrier lies between")
        if op == "griddepcontrol.wait":
            words["waits"] += 1
    # Of several places that set the word, those for tiles without waits are behind looks for others; paths do not tell.
    if unfenced and all(unfenced):
        faults.append("bulk copies may read old data: no proxy fence lies between a look and the word that lets them go on")
    return sorted(set(faults)), {"posts": posts, "looks": looks, **words}


# At least so many of each, in the entry of a family that has the most of them.
NEEDS = {
    "ampere": {"posts": 1, "looks": 1, "copies": 1},
    "gemm": {"posts": 1, "looks": 1, "word": 1, "read": 1},
    "chain": {"posts": 1, "looks": 1, "word": 1, "read": 1, "flag": 1, "waits": 1},
    "norm": {"posts": 1, "looks": 1, "word": 1, "read": 2, "flag": 1, "waits": 1},
    "conv": {"posts": 1, "looks": 1, "word": 1, "read": 1, "flag": 1, "waits": 1},
    "turned": {"posts": 1, "looks": 1, "word": 1, "read": 1, "flag": 1, "waits": 1},
    "decode": {"posts": 1, "looks": 1, "waits": 1, "count": 1, "flag": 1},
    "attend": {"posts": 2, "looks": 2, "waits": 1, "count": 1},
}


def judge(kernel, ptx):
    faults, most = [], {}
    for name, body in bodies(ptx):
        found, counts = practice(name, body, kernel)
        faults += found
        for what, count in counts.items():
            most[what] = max(most.get(what, 0), count)
    for what, least in NEEDS[kernel].items():
        if most.get(what, 0) < least:
            faults.append(f"no {what}")
    return sorted(set(faults)), most


PTX, WAITS = None, "kernels/common/sm90/wait.cuh"
CHAIN, GEMM = "kernels/chain/sm90/epilogue.cuh", "kernels/gemm/sm90/epilogue.cuh"
FULL, READ = "ptx::cp_async_bulk_wait_group<0>();", "ptx::cp_async_bulk_wait_group_read<0>();"
# What is done to which file, or to the PTX, and the kernel that is compiled.
MUTANTS = [
    ("a post is relaxed", PTX, "red.release.gpu.global.add", "red.relaxed.gpu.global.add", "gemm"),
    ("a post releases to its CTA only", PTX, "red.release.gpu.global.add", "red.release.cta.global.add", "gemm"),
    ("a look is relaxed", PTX, "ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32", "gemm"),
    ("a look acquires from its CTA only", PTX, "ld.acquire.gpu.global.u32", "ld.acquire.cta.global.u32", "gemm"),
    ("full waits are `.read`", PTX, "cp.async.bulk.wait_group ", "cp.async.bulk.wait_group.read ", "gemm"),
    ("the proxy fence is gone", PTX, "fence.proxy.async.global;", "", "gemm"),
    ("the proxy fence is for shared memory", PTX, "fence.proxy.async.global;", "fence.proxy.async.shared::cta;", "gemm"),
    ("the fence before the word is gone", WAITS, "        order_reads<ReadBy::kTma>();\n", "", "gemm"),
    ("the word is set relaxed", PTX, "atom.release.cta.shared.exch", "atom.relaxed.cta.shared.exch", "gemm"),
    ("the word is read relaxed", PTX, "atom.acquire.cta.shared.or", "atom.relaxed.cta.shared.or", "gemm"),
    ("gemm: `.read` before the post", GEMM, FULL, READ, "gemm"),
    ("gemm: no wait before the post", GEMM, FULL, "", "gemm"),
    ("gemm: one store may be pending", GEMM, FULL, "ptx::cp_async_bulk_wait_group<1>();", "gemm"),
    ("chain: `.read` before the post", CHAIN, FULL, READ, "chain"),
    ("chain: no wait before the post", CHAIN, FULL, "", "chain"),
    ("chain: one store may be pending", CHAIN, FULL, "ptx::cp_async_bulk_wait_group<1>();", "chain"),
    ("chain: a residual is brought without a proxy fence", CHAIN, "await_in_epilogue<C, ReadBy::kTma", "await_in_epilogue<C, ReadBy::kLoads",
     "chain"),
    ("chain: a flag is relaxed", PTX, "st.release.gpu.global.u32", "st.relaxed.gpu.global.u32", "chain"),
    ("chain: nobody waits for the run before", PTX, "griddepcontrol.wait;", "", "chain"),
    ("decode: a post is relaxed", PTX, "red.release.gpu.global.add", "red.relaxed.gpu.global.add", "decode"),
    ("decode: a look is relaxed", PTX, "ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32", "decode"),
    ("decode: nobody waits for the run before", PTX, "griddepcontrol.wait;", "", "decode"),
    ("decode: a loader does not wait for the run before", "kernels/decode/sm90/activations.cuh",
     "  ptx::griddepcontrol_wait();\n  ActivationLoader", "  ActivationLoader", "decode"),
    ("decode: activations are brought without a proxy fence", "kernels/decode/sm90/activations.cuh",
     "        if constexpr (AnyParams::kMaps) ptx::fence_proxy_async_global();\n", "", "decode"),
    ("decode: no barrier before the posts", "kernels/decode/sm90/epilogue.cuh",
     "  ptx::bar_sync(1, kMathThreads);\n  if (!stage.posts", "  if (!stage.posts", "decode"),
    ("session: workers that finish a job are counted by what orders nothing", PTX, "atom.acq_rel.gpu.global.add.u32",
     "atom.relaxed.gpu.global.add.u32", "decode"),
    ("session: no barrier before the count", "kernels/decode/sm90/jobs.cuh", "    ptx::bar_sync(1, kMathThreads);\n    if (threadIdx", "    if (threadIdx",
     "decode"),
    ("session: the end of a job is told relaxed", PTX, "st.release.gpu.global.u32", "st.relaxed.gpu.global.u32", "decode"),
    ("norm: no proxy fence behind the rows", "kernels/norm/sm90/operation.cuh", "      ptx::fence_proxy_async_global();\n", "",
     "norm"),
    ("ampere: no barrier before the post", "kernels/gemm/sm80/kernel.cuh", "    __syncthreads();  // the whole tile is stored\n", "", "ampere"),
    ("ampere: no barrier behind a look", "kernels/gemm/sm80/wait.cuh", "    }\n    __syncthreads();\n", "    }\n", "ampere"),
    ("ampere: a post is relaxed", PTX, "red.release.gpu.global.add", "red.relaxed.gpu.global.add", "ampere"),
    ("attend: a count orders nothing", PTX, "atom.acq_rel.gpu.global.add.u32", "atom.relaxed.gpu.global.add.u32", "attend"),
    ("attend: no barrier before the count", "kernels/decode/sm90/attend.cuh",
     "    ptx::bar_sync(1, kMathThreads);\n    if (thread_ != 0) return;\n    Segment", "    if (thread_ != 0) return;\n    Segment",
     "attend"),
]


def mutant(name, file, old, new, kernel):
    """What is wrong with a kernel after a change of its PTX or of csrc."""
    def change(text):
        if old not in text:
            raise SystemExit(f"{name}: {file or kernel} has no `{old}`")
        return text.replace(old, new)

    if file is PTX:
        return judge(kernel, change(ptx_of(kernel)))[0]
    with tempfile.TemporaryDirectory() as scratch:
        csrc = Path(scratch) / "csrc"
        shutil.copytree(ROOT / "csrc", csrc)
        (csrc / file).write_text(change((csrc / file).read_text()))
        return judge(kernel, ptx_of(kernel, csrc))[0]


def mutants(chosen):
    """Prints what is wrong with each mutant; returns how many were missed."""
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(ptx_of, sorted({kernel for _, file, *_, kernel in chosen if file is PTX})))
        for (name, *_), faults in zip(chosen, pool.map(lambda m: mutant(*m), chosen)):
            missed += not faults
            print(f"{name}: {'caught: ' + faults[0] if faults else 'NOT CAUGHT'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutants caught")
    return missed


def main(arguments):
    if not (TOOLS / "nvidia/cu13/bin/nvcc").exists():
        print("skipped: no nvcc in .toolchain (cargo xtask setup)")
        return 0
    if arguments:
        words = arguments[1:]
        return mutants([m for m in MUTANTS if not words or any(word in m[0] for word in words)]) > 0
    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for kernel, (faults, counts) in zip(KERNELS, pool.map(lambda k: judge(k, ptx_of(k)), KERNELS)):
            bad += len(faults)
            told = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
            print(f"{kernel}: {'; '.join(faults) if faults else 'as its contract says'} ({told})", flush=True)
    return bad + mutants([m for m in MUTANTS if m[1] is PTX]) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
