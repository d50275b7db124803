/* A gate stands between Python threads and an object of the library's that one of them may close: a call enters, works
 * on the object and leaves; closing takes the object out, waits until nobody is inside, and puts it back if the library
 * refuses. So a handle of a destroyed object never reaches the library. Both compiled modules look at the same gates.
 */
#ifndef PYVMM_GATE_H
#define PYVMM_GATE_H

typedef struct vmm_py_gate {
  void *object; /* NULL: closed, or being closed */
  long users;   /* threads between enter and leave */
} vmm_py_gate;

#ifndef VMM_CDEF

/* Gives the object, with one user more, or NULL if the gate is closed. */
static inline void *vmm_py_enter(vmm_py_gate *gate) {
  void *object;

  __atomic_add_fetch(&gate->users, 1, __ATOMIC_SEQ_CST);
  object = __atomic_load_n(&gate->object, __ATOMIC_SEQ_CST);
  if (object == (void *)0) __atomic_sub_fetch(&gate->users, 1, __ATOMIC_SEQ_CST);
  return object;
}

static inline void vmm_py_leave(vmm_py_gate *gate) { __atomic_sub_fetch(&gate->users, 1, __ATOMIC_SEQ_CST); }

#endif

#endif
