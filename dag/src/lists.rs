//! Lists of nodes that many nodes share, each stored once.
//!
//! Where a set of nodes precedes every node of another set, each node of the second has the same list of
//! predecessors. Stored once, such lists take the space of both sets together, not of their product, and work on a
//! list is done once for all nodes that have it.

/// A list for each node; equal lists are one. List 0 is empty.
#[derive(Clone, Debug)]
pub(crate) struct SharedLists<T> {
    items: Vec<T>,
    /// Where each list begins in `items`, and the length of `items`.
    first: Vec<usize>,
    /// The list of each node.
    list: Vec<u32>,
    /// The number of nodes with each list.
    users: Vec<u32>,
    /// Lists other than list 0, from the place on that the hash of their items gives; 0 where there is none. At most
    /// half of the places are taken.
    found: Vec<u32>,
}

impl<T: Copy + PartialEq + Into<u64>> SharedLists<T> {
    /// All nodes have the empty list.
    pub(crate) fn new(nodes: usize) -> Self {
        SharedLists {
            items: Vec::new(),
            first: vec![0, 0],
            list: vec![0; nodes],
            users: vec![nodes as u32],
            found: vec![0; (2 * nodes).next_power_of_two()],
        }
    }

    /// Gives a node without a list one; returns the list's number, and whether it is new.
    pub(crate) fn set(&mut self, node: usize, items: &[T]) -> (usize, bool) {
        if items.is_empty() {
            self.give(node, 0);
            return (0, false);
        }
        let mut place = hash(items) as usize & (self.found.len() - 1);
        let list = loop {
            match self.found[place] as usize {
                0 => break self.users.len(),
                known if self.items(known) == items => {
                    self.give(node, known);
                    return (known, false);
                }
                _ => place = (place + 1) & (self.found.len() - 1),
            }
        };
        self.found[place] = list as u32;
        self.items.extend_from_slice(items);
        self.first.push(self.items.len());
        self.users.push(0);
        self.give(node, list);
        (list, true)
    }

    /// Gives a node a list that exists.
    pub(crate) fn give(&mut self, node: usize, list: usize) {
        self.users[self.list[node] as usize] -= 1;
        self.users[list] += 1;
        self.list[node] = list as u32;
    }

    /// Number of lists.
    pub(crate) fn count(&self) -> usize {
        self.users.len()
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.list.len()
    }

    /// Number of a node's list.
    pub(crate) fn list_of(&self, node: usize) -> usize {
        self.list[node] as usize
    }

    /// The number of nodes with a list.
    pub(crate) fn users(&self, list: usize) -> usize {
        self.users[list] as usize
    }

    /// The items of a list.
    pub(crate) fn items(&self, list: usize) -> &[T] {
        &self.items[self.first[list]..self.first[list + 1]]
    }

    /// The items of the list of a node.
    pub(crate) fn of_node(&self, node: usize) -> &[T] {
        self.items(self.list_of(node))
    }
}

fn hash<T: Copy + Into<u64>>(items: &[T]) -> u64 {
    let mix =
        |hash: u64, item: &T| (hash.rotate_left(23) ^ (*item).into()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = items.iter().fold(items.len() as u64, mix);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_are_one() {
        let mut lists = SharedLists::<u32>::new(4);
        assert_eq!(lists.set(0, &[1, 2]), (1, true));
        assert_eq!(lists.set(1, &[1, 2]), (1, false));
        assert_eq!(lists.set(2, &[2, 1]), (2, true));
        assert_eq!(lists.set(3, &[]), (0, false));
        assert_eq!((lists.count(), lists.users(0), lists.users(1), lists.users(2)), (3, 1, 2, 1));
        assert_eq!((lists.of_node(1), lists.of_node(3)), (&[1, 2][..], &[][..]));
        lists.give(2, 1);
        assert_eq!((lists.of_node(2), lists.users(1), lists.users(2)), (&[1, 2][..], 3, 0));
    }
}
