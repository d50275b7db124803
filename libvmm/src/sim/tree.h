/* An ordered map with 64-bit keys, for everything the simulator looks up: addresses, handles, streams, events. Intrusive
 * (the node is the first member of what it holds), so that inserting cannot fail. Randomised by a hash of the key alone:
 * the same calls always build the same tree. */
#ifndef VMM_SIM_TREE_H
#define VMM_SIM_TREE_H

#include "base/checked.h"

typedef struct vmm__sim_node {
  struct vmm__sim_node *left;
  struct vmm__sim_node *right;
  vmm__u64 key;
} vmm__sim_node;

typedef struct vmm__sim_tree {
  vmm__sim_node *root;
  vmm__u64 count;
} vmm__sim_tree;

/* The key must not be in the tree. */
void vmm__sim_tree_insert(vmm__sim_tree *tree, vmm__sim_node *node);
/* The node must be in the tree. */
void vmm__sim_tree_remove(vmm__sim_tree *tree, vmm__sim_node *node);
/* Takes any one out; NULL from an empty tree. */
vmm__sim_node *vmm__sim_tree_take(vmm__sim_tree *tree);

/* Each answers NULL if there is none. */
vmm__sim_node *vmm__sim_tree_find(const vmm__sim_tree *tree, vmm__u64 key);
vmm__sim_node *vmm__sim_tree_at_or_below(const vmm__sim_tree *tree, vmm__u64 key);
vmm__sim_node *vmm__sim_tree_at_or_above(const vmm__sim_tree *tree, vmm__u64 key);
/* The one behind `node`. */
vmm__sim_node *vmm__sim_tree_next(const vmm__sim_tree *tree, const vmm__sim_node *node);

#endif
