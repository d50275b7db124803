"""The older pool's algorithm, which the library is compared with. It lies in pyvmm/demo, because the demonstration also
runs from an installed wheel; the library itself knows nothing of it.

    python scripts/older_pool.py      prints how it grows: the calls of one growth, on the simulated device
"""

from __future__ import annotations

from pyvmm.demo.machine import Machine
from pyvmm.demo.older_pool import RESERVATION, ROUNDING, OlderPool
from pyvmm.demo.workload import SIM

__all__ = ["RESERVATION", "ROUNDING", "OlderPool"]


def main() -> None:
    machine = Machine("sim", SIM)
    recorded = machine.driver.recorded()
    machine.raw = recorded.raw
    OlderPool(machine).alloc(1)
    print(recorded.text())


if __name__ == "__main__":
    main()
