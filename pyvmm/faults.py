"""A driver whose calls fail by rule."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from . import callbacks, codes, raw, reaper, sizes
from ._vmm import ffi, lib
from .drivers import Driver
from .errors import InvalidArgumentError, check, new
from .options import enumerator, fill
from .records import Orphan, array, read

Rule: TypeAlias = str | Mapping[str, Any]
"""A rule as text, for example "cuMemSetAccess:NOT_READY@3x2", or as the keyword arguments of Faulty.add."""

Hook: TypeAlias = Callable[[str, int], object]
"""Called with the driver symbol and the number of the matching call, before it is made."""

CONDITIONS = {"pending": "if_pending", "over_budget": "if_over_budget", "after_release": "if_after_release"}


class Faulty(Driver):
    """A driver whose calls fail by rule. Without rules it passes every call on."""

    def __init__(self, inner: Driver, *rules: Rule, seed: int = 0) -> None:
        pointer, error = ffi.new("vmm_driver **"), new()
        check(lib.vmm_fault_create(pointer, inner.pointer, seed, error), error)
        super().__init__(pointer[0], inner)
        self._last = 0
        self._hooks: list[int] = []
        for rule in rules:
            if isinstance(rule, str):
                self.add(rule)
            else:
                self.add(**rule)

    def add(
        self,
        text: str | None = None,
        /,
        *,
        op: str | int = "any",
        code: str | int = 0,
        phase: str | int = "before",
        condition: str | int = "always",
        times: float | str = 1,
        this_thread: bool = False,
        probability: float = 0.0,
        hook: Hook | None = None,
        **more: Any,
    ) -> int:
        """Adds a rule and answers its number; for a text of several rules, that of the first.

        op: "cuMemSetAccess", "mem_set_access" or "any". code: "NOT_READY", 600; 0 with a hook only calls the hook.
        phase: "before", "after", "lie", "partial". condition: "pending", "over_budget" (with budget=), "after_release".
        times: how many matching calls fail from `occurrence` on; math.inf or "ever". More: occurrence, address with
        size, object, sticky, thread, budget, delay_ns or delay in seconds.
        """
        error = new()
        if text is not None:
            first = self._last + 1
            check(lib.vmm_fault_add_text(self.pointer, text.encode(), error), error)
            self._last += text.count(",") + 1
            return first
        rule = fill("a fault rule", "vmm_fault_rule", more)
        rule.op, rule.code = raw.op(op), codes.code(code)
        rule.phase = enumerator("VMM_FAULT_", phase, "phase")
        condition = CONDITIONS.get(condition, condition) if isinstance(condition, str) else condition
        rule.condition = enumerator("VMM_FAULT_", condition, "condition")
        for_ever = times in ("ever", math.inf)
        rule.times = lib.VMM_FAULT_FOR_EVER if for_ever else sizes.parse(operator.index(times), "times")  # type: ignore[arg-type]
        if "object" in more:
            rule.match_object = 1
        if this_thread:
            rule.thread = lib.vmm_fault_thread()
        if not 0 <= probability <= 1:
            raise InvalidArgumentError(f"probability: {probability!r} is outside 0 .. 1")
        rule.probability = min(round(probability * 2**32), 2**32 - 1)
        key = 0
        if hook is not None:
            key = callbacks.register(hook)
            rule.hook, rule.hook_data = lib.vmm_py_fault_hook, callbacks.data(key)
        number = ffi.new("int *")
        try:
            check(lib.vmm_fault_add(self.pointer, rule, number, error), error)
        except BaseException:
            callbacks.forget(key)
            raise
        if key:
            self._hooks.append(key)
            reaper.unhook_at_exit(self)
        self._last = max(self._last, number[0])
        return int(number[0])

    def _count(self, rule: int | None) -> tuple[int, int]:
        fired, matched = ffi.new("unsigned long long *"), ffi.new("unsigned long long *")
        if rule is not None:
            check(lib.vmm_fault_count(self.pointer, rule, fired, matched))
            return fired[0], matched[0]
        both = (0, 0)
        for number in range(1, self._last + 1):  # those before the last clear are not known any more
            if lib.vmm_fault_count(self.pointer, number, fired, matched) == 0:
                both = (both[0] + fired[0], both[1] + matched[0])
        return both

    def fired(self, rule: int | None = None) -> int:
        """How often a rule fired, or all of them together."""
        return self._count(rule)[0]

    def matched(self, rule: int | None = None) -> int:
        """How many matching calls a rule saw."""
        return self._count(rule)[1]

    def opportunities(self, op: str | int = "any") -> int:
        """How many calls of an operation were seen since the last clear."""
        return lib.vmm_fault_opportunities(self.pointer, raw.op(op))

    def clear(self) -> None:
        """Removes all rules, ends a sticky state and restarts the counts."""
        check(lib.vmm_fault_clear(self.pointer))
        for key in self._hooks:
            callbacks.forget(key)
        self._hooks.clear()

    unhook = clear

    def __del__(self, forget: Callable[[int], None] = callbacks.forget) -> None:
        for key in getattr(self, "_hooks", ()):  # the C side may live a little longer; it then finds nothing to call
            forget(key)

    def orphans(self) -> list[Orphan]:
        """What creating calls made before they were told to have failed: nobody else can name it."""
        count = ffi.new("size_t *")
        check(lib.vmm_fault_get_orphans(self.pointer, ffi.NULL, 0, count))
        entries = array(Orphan, count[0])
        check(lib.vmm_fault_get_orphans(self.pointer, entries, len(entries), count))
        return [read(Orphan, entries[i]) for i in range(min(len(entries), count[0]))]

    def release_orphans(self) -> None:
        """Gives them back through the inner driver."""
        check(lib.vmm_fault_release_orphans(self.pointer))


def faulty(inner: Driver, *rules: Rule, seed: int = 0) -> Faulty:
    """A driver with rules that make its calls fail."""
    return Faulty(inner, *rules, seed=seed)
