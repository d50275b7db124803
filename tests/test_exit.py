"""How programs end that leave pools, blocks and callbacks behind: in a child, with exit code 0 and a silent stderr."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROLOGUE = """
import atexit, gc, os, sys, threading, time
import pyvmm
driver = pyvmm.sim(memory="64MiB").faulty()
device = pyvmm.Device(driver=driver)
pool = device.pool()
block = pool.alloc("4MiB")
"""

ENDINGS = {
    "all alive": "blocks = [pool.alloc(i) for i in range(100)]",
    "addresses alive": "addresses = [pool.alloc_address(i) for i in range(100)]",
    "only a block": "del pool, device, driver",
    "only a pool": "del block, device, driver",
    "dropped and never reaped": "del block, pool, device, driver; gc.collect()",
    "cycles": "a = [pool.alloc(1), device]; a.append(a); b = {'pool': pool}; b['b'] = b; del a, b, pool, block, device",
    "callbacks": """
device.set_pressure(lambda device, size: 0)
driver.add(op="any", times="ever", hook=lambda call, n: None)
""",
    "a callback that would raise": """
def pressure(device, size): raise RuntimeError
device.set_pressure(pressure)
driver.add(op="cuMemUnmap", times="ever", hook=pressure)
""",
    "closed in an exit function": """
@atexit.register
def end():
    block.close(); pool.close(); device.close()
""",
    "used in an exit function": """
@atexit.register
def end():
    other = pool.alloc("8MiB"); assert other.address; del other
    pool.trim()
""",
    "used in a destructor at the end": """
class Late:
    def __del__(self):
        self.block.close()
late = Late(); late.block = pool.alloc(64); late.self = late
""",
    "a lost device": """
driver.add(op="cuMemCreate", code="ILLEGAL_ADDRESS", sticky=True)
try:
    pool.alloc("16MiB")
except pyvmm.VmmError: pass
""",
    "a daemon thread at work": """
def work():
    while True: pool.alloc(4096).close()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
""",
    "a daemon thread in a callback": """
inside = threading.Event()
def pressure(device, size):
    inside.set(); time.sleep(60); return 0
device.set_pressure(pressure)
threading.Thread(target=lambda: pool.alloc("128MiB"), daemon=True).start()
assert inside.wait(10)
""",
    "a view": "view = driver.sim.view(block.address, 4096); view[:] = 1",
    "sys.exit in a callback": """
def pressure(device, size): sys.exit(0)
device.set_pressure(pressure)
pool.alloc("128MiB")
raise AssertionError
""",
    "threads that end first": """
threads = [threading.Thread(target=lambda: [pool.alloc(99) for _ in range(50)]) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
    "a forked child": """
children = []
child = os.fork()
if child == 0:
    for call in (lambda: pool.alloc(1), lambda: pool.stats, lambda: block.free(), pool.trim, pool.close, device.close,
                 lambda: device.pool(), lambda: pyvmm.Device(driver=driver)):
        try:
            call()
        except pyvmm.ForkedError:
            pass
        else:
            sys.exit(9)
    del block
    sys.exit(0)  # with all its exit functions
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
pool.alloc(4096).close()
block.close(); pool.close(); device.close()
""",
}


def run(code: str, tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-c", PROLOGUE + code]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("flags", [(), ("-X", "dev", "-W", "error")], ids=["plain", "dev"])
@pytest.mark.parametrize("code", ENDINGS.values(), ids=list(ENDINGS))
def test_the_end_is_silent(code: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    done = run(code, tmp_path, *flags)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_a_program_that_fails_shows_only_its_failure(tmp_path: Path) -> None:
    done = run("raise KeyError('mine')", tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "KeyError: 'mine'"
    assert (done.stderr.count("Traceback"), "ignored" in done.stderr) == (1, False)


def test_importing_needs_no_gpu_and_no_framework(tmp_path: Path) -> None:
    code = """
import sys
import pyvmm
heavy = {"numpy", "torch", "cupy", "numba", "cuda", "typer", "rich", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.gpu
def test_the_end_is_silent_on_a_gpu(gpu: object, tmp_path: Path) -> None:
    for name, code in ENDINGS.items():
        if any(word in name for word in ("view", "callback")):  # they need memory to be short, or the simulator
            continue
        prologue = PROLOGUE.replace('pyvmm.sim(memory="64MiB")', "pyvmm.cuda()")
        # The CUDA driver has threads of its own, and Python 3.12 warns of any fork beside threads: not our noise.
        quiet = "ignore:This process:DeprecationWarning"
        command = [sys.executable, "-W", quiet, "-c", prologue + code]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (name, done.returncode, done.stderr) == (name, 0, "")
