/* A treap whose priorities are hashes of the keys. */
#include "sim/tree.h"

static vmm__u64 priority(const vmm__sim_node *node) {
  vmm__u64 x = node->key * 0x9E3779B97F4A7C15u;

  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

static void split(vmm__sim_node *tree, vmm__u64 key, vmm__sim_node **below, vmm__sim_node **above) {
  while (tree != NULL) {
    if (tree->key < key) {
      *below = tree;
      below = &tree->right;
      tree = tree->right;
    } else {
      *above = tree;
      above = &tree->left;
      tree = tree->left;
    }
  }
  *below = NULL;
  *above = NULL;
}

static vmm__sim_node *merge(vmm__sim_node *low, vmm__sim_node *high) {
  vmm__sim_node *root;
  vmm__sim_node **link = &root;

  while (low != NULL && high != NULL) {
    if (priority(low) >= priority(high)) {
      *link = low;
      link = &low->right;
      low = low->right;
    } else {
      *link = high;
      link = &high->left;
      high = high->left;
    }
  }
  *link = low != NULL ? low : high;
  return root;
}

void vmm__sim_tree_insert(vmm__sim_tree *tree, vmm__sim_node *node) {
  vmm__sim_node **link = &tree->root;
  vmm__u64 mine = priority(node);

  while (*link != NULL && priority(*link) >= mine) link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
  split(*link, node->key, &node->left, &node->right);
  *link = node;
  tree->count++;
}

void vmm__sim_tree_remove(vmm__sim_tree *tree, vmm__sim_node *node) {
  vmm__sim_node **link = &tree->root;

  while (*link != node) link = node->key < (*link)->key ? &(*link)->left : &(*link)->right;
  *link = merge(node->left, node->right);
  tree->count--;
}

vmm__sim_node *vmm__sim_tree_take(vmm__sim_tree *tree) {
  vmm__sim_node *node = tree->root;

  if (node != NULL) {
    tree->root = merge(node->left, node->right);
    tree->count--;
  }
  return node;
}

vmm__sim_node *vmm__sim_tree_find(const vmm__sim_tree *tree, vmm__u64 key) {
  vmm__sim_node *node = tree->root;

  while (node != NULL && node->key != key) node = key < node->key ? node->left : node->right;
  return node;
}

vmm__sim_node *vmm__sim_tree_at_or_below(const vmm__sim_tree *tree, vmm__u64 key) {
  vmm__sim_node *node = tree->root;
  vmm__sim_node *best = NULL;

  while (node != NULL) {
    if (node->key <= key) {
      best = node;
      node = node->right;
    } else {
      node = node->left;
    }
  }
  return best;
}

vmm__sim_node *vmm__sim_tree_at_or_above(const vmm__sim_tree *tree, vmm__u64 key) {
  vmm__sim_node *node = tree->root;
  vmm__sim_node *best = NULL;

  while (node != NULL) {
    if (node->key >= key) {
      best = node;
      node = node->left;
    } else {
      node = node->right;
    }
  }
  return best;
}

vmm__sim_node *vmm__sim_tree_next(const vmm__sim_tree *tree, const vmm__sim_node *node) {
  return node->key == UINT64_MAX ? NULL : vmm__sim_tree_at_or_above(tree, node->key + 1);
}
