/* The base of Block: what it owns, and a free that simply fits. */
#include "fast.h"

static int block_traverse(PyObject *object, visitproc visit, void *arg) {
  quick_block *self = (quick_block *)object;

  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->pool);
  Py_VISIT(self->stream);
  return 0;
}

static int block_clear(PyObject *object) {
  quick_block *self = (quick_block *)object;

  Py_CLEAR(self->pool);
  Py_CLEAR(self->stream);
  return 0;
}

static void block_dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  (void)block_clear(object);
  let_go(object);
}

static int take(quick_block *self) { return __atomic_exchange_n(&self->live, 0, __ATOMIC_SEQ_CST); }

static int is_live(const quick_block *self) { return __atomic_load_n(&self->live, __ATOMIC_SEQ_CST); }

/* A forced close of the pool may have taken its memory, and the pool still stand. */
static int is_outlived(const quick_block *self) {
  return __atomic_load_n(&self->pool->epoch, __ATOMIC_SEQ_CST) != self->epoch;
}

/* Frees it if that is simple. */
static int free_quickly(quick_block *self) {
  if (!is_quick(self->pool) || is_outlived(self) || !take(self)) return 0;
  if (try_free(self->pool, self->address, self->on)) return 1;
  __atomic_store_n(&self->live, 1, __ATOMIC_SEQ_CST);
  return 0;
}

/* It may run anywhere, also in a callback of the library's. */
static void block_finalize(PyObject *object) {
  quick_block *self = (quick_block *)object;
  PyObject *kind, *value, *trace, *done;

  if (!is_live(self) || self->pool == NULL || free_quickly(self)) return;
  PyErr_Fetch(&kind, &value, &trace);
  done = pyvmm__in_python(object, "_drop", NULL, 0, NULL);
  if (done == NULL) PyErr_WriteUnraisable(object);
  Py_XDECREF(done);
  PyErr_Restore(kind, value, trace);
}

static PyObject *block_free(PyObject *object, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  if (count == 0 && names == NULL && free_quickly((quick_block *)object)) return none();
  return pyvmm__in_python(object, "_free", given, count, names);
}

static PyObject *block_close(PyObject *object, PyObject *unused) {
  (void)unused;
  if (!is_live((quick_block *)object) || free_quickly((quick_block *)object)) return none();
  return pyvmm__in_python(object, "_close", NULL, 0, NULL);
}

static PyObject *block_enter(PyObject *object, PyObject *unused) {
  (void)unused;
  Py_INCREF(object);
  return object;
}

static PyObject *block_exit(PyObject *object, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  (void)given, (void)count, (void)names;
  return block_close(object, NULL);
}

static PyObject *block_take(PyObject *object, PyObject *unused) {
  (void)unused;
  return PyBool_FromLong(take((quick_block *)object));
}

static PyObject *block_get_pool(PyObject *object, void *unused) {
  PyObject *pool = (PyObject *)((quick_block *)object)->pool;

  (void)unused;
  if (pool == NULL) {
    PyErr_SetString(PyExc_AttributeError, "pool: blocks are made by pools");
    return NULL;
  }
  Py_INCREF(pool);
  return pool;
}

static PyObject *block_get_stream(PyObject *object, void *unused) {
  PyObject *stream = ((quick_block *)object)->stream;

  (void)unused;
  if (stream == NULL) return none();
  Py_INCREF(stream);
  return stream;
}

static PyObject *block_get_live(PyObject *object, void *unused) {
  quick_block *self = (quick_block *)object;

  (void)unused;
  return PyBool_FromLong(is_live(self) && self->pool != NULL && !is_outlived(self));
}

static PyObject *block_get_outlived(PyObject *object, void *unused) {
  quick_block *self = (quick_block *)object;

  (void)unused;
  return PyBool_FromLong(self->pool == NULL || is_outlived(self));
}

static PyObject *block_get_address(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(((quick_block *)object)->address);
}

static PyObject *block_get_nbytes(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(((quick_block *)object)->size);
}

static PyObject *block_get_tag(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromUnsignedLongLong(((quick_block *)object)->tag);
}

static PyMethodDef block_methods[] = {
    {"free", FAST(block_free),
     "Frees it, ordered on its stream; ClosedError if it was freed before. Block._free says what else can be asked "
     "for."},
    {"close", block_close, METH_NOARGS,
     "close($self, /)\n--\n\nFrees it, ordered on its stream. Closing twice is fine, and so is closing after the "
     "pool."},
    {"__enter__", block_enter, METH_NOARGS, NULL},
    {"__exit__", FAST(block_exit), NULL},
    {"_take", block_take, METH_NOARGS, "Takes the right to free it; False if somebody has."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef block_values[] = {
    {"pool", block_get_pool, NULL, "The pool; a block keeps it alive.", NULL},
    {"nbytes", block_get_nbytes, NULL, "Bytes asked for.", NULL},
    {"tag", block_get_tag, NULL, "The number it was allocated with.", NULL},
    {"_address", block_get_address, NULL, "The address, also of a closed block.", NULL},
    {"_stream", block_get_stream, NULL, "The stream it was allocated on, or None: the pool's home stream.", NULL},
    {"_live", block_get_live, NULL, "Whether nobody has freed it.", NULL},
    {"_outlived", block_get_outlived, NULL, "Whether a forced close took its memory though it failed later on.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot block_slots[] = {{Py_tp_methods, block_methods},
                                    {Py_tp_getset, block_values},
                                    {Py_tp_traverse, FUNCTION(block_traverse)},
                                    {Py_tp_clear, FUNCTION(block_clear)},
                                    {Py_tp_finalize, FUNCTION(block_finalize)},
                                    {Py_tp_dealloc, FUNCTION(block_dealloc)},
                                    {0, NULL}};

PyType_Spec pyvmm__block_spec = {"pyvmm._fast.QuickBlock", (int)sizeof(quick_block), 0, PYVMM__FLAGS, block_slots};
