//! Sets of nodes that many lists have in common, for which joins can stand.

use std::collections::HashMap;

/// Lists shorter than this are not split.
const LONG: usize = 4;

/// Sets of items, each wholly contained in some lists.
pub(crate) struct Bundles {
    /// The items of each bundle.
    pub(crate) members: Vec<Vec<u32>>,
    /// The bundles of each list: no item of a list is in two of them.
    pub(crate) of_list: Vec<Vec<u32>>,
    /// Whether the only bundle of a list is the whole list.
    whole: Vec<bool>,
    /// The bundle of each item of lists that are split.
    of_item: Vec<Option<u32>>,
}

impl Bundles {
    /// The bundles of lists of items below `items`, with the number of users of each list. A list is a bundle if
    /// `pays` accepts its length and its users; of the other lists, so are the items that the same of them contain.
    pub(crate) fn new(
        items: usize,
        lists: &[(&[u32], usize)],
        pays: impl Fn(usize, usize) -> bool,
    ) -> Bundles {
        let mut found = Bundles {
            members: Vec::new(),
            of_list: vec![Vec::new(); lists.len()],
            whole: vec![false; lists.len()],
            of_item: Vec::new(),
        };
        let mut long = Vec::new();
        for (at, &(list, users)) in lists.iter().enumerate() {
            if pays(list.len(), users) {
                found.of_list[at].push(found.members.len() as u32);
                found.members.push(list.to_vec());
                found.whole[at] = true;
            } else if list.len() >= LONG && users > 0 {
                long.push(at);
            }
        }
        if long.len() > 1 {
            found.split(items, lists, &long, pays);
        }
        found
    }

    /// Adds the bundles of the long lists.
    fn split(
        &mut self,
        items: usize,
        lists: &[(&[u32], usize)],
        long: &[usize],
        pays: impl Fn(usize, usize) -> bool,
    ) {
        // Items of the same lists have the same sum. Should two others collide, no list contains their class.
        let mut sums = vec![0u64; items];
        for &at in long {
            let random = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let random = (random ^ random >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            lists[at].0.iter().for_each(|&i| sums[i as usize] = sums[i as usize].wrapping_add(random));
        }
        let (mut class_of_sum, mut classes): (HashMap<u64, u32>, Vec<Vec<u32>>) = Default::default();
        let mut class = vec![u32::MAX; items];
        for (item, &sum) in sums.iter().enumerate().filter(|(_, sum)| **sum != 0) {
            class[item] = *class_of_sum.entry(sum).or_insert_with(|| {
                classes.push(Vec::new());
                classes.len() as u32 - 1
            });
            classes[class[item] as usize].push(item as u32);
        }
        // The lists that contain a class, and their users.
        let (mut within, mut count) = (vec![(Vec::new(), 0); classes.len()], vec![0; classes.len()]);
        for &at in long {
            for &item in lists[at].0.iter().filter(|&&item| class[item as usize] != u32::MAX) {
                let own = class[item as usize] as usize;
                count[own] += 1;
                if count[own] == classes[own].len() {
                    within[own].0.push(at);
                    within[own].1 += lists[at].1;
                }
            }
            let own = |&item: &u32| count.get_mut(class[item as usize] as usize).map(|count| *count = 0);
            lists[at].0.iter().map(own).for_each(drop);
        }
        self.of_item = vec![None; items];
        for (items, (within, users)) in classes.into_iter().zip(within) {
            if items.len() > 1 && pays(items.len(), users) {
                let bundle = self.members.len() as u32;
                within.into_iter().for_each(|at| self.of_list[at].push(bundle));
                items.iter().for_each(|&item| self.of_item[item as usize] = Some(bundle));
                self.members.push(items);
            }
        }
    }

    /// The bundle of a list that has one of its items.
    pub(crate) fn bundle(&self, list: usize, item: u32) -> Option<u32> {
        let bundles = &self.of_list[list];
        match self.whole[list] {
            true => bundles.first().copied(),
            false if bundles.is_empty() => None,
            false => self.of_item[item as usize].filter(|bundle| bundles.contains(bundle)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_items_are_bundled_and_others_are_not() {
        let lists: [(&[u32], usize); 6] = [
            (&[], 9),
            (&[1, 2, 3], 9),
            (&[0, 4, 5, 6, 7], 1),
            (&[4, 5, 6, 7, 8], 1),
            (&[4, 5, 6, 7, 9], 1),
            (&[0, 9], 1),
        ];
        let found = Bundles::new(10, &lists, |items, users| items > 1 && users > 2);
        assert_eq!(found.members, [vec![1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(found.of_list, [vec![], vec![0], vec![1], vec![1], vec![1], vec![]]);
        let bundles = |list: usize| lists[list].0.iter().map(|&i| found.bundle(list, i)).collect::<Vec<_>>();
        assert_eq!(bundles(1), [Some(0); 3]);
        assert_eq!(bundles(2), [None, Some(1), Some(1), Some(1), Some(1)]);
        assert_eq!(bundles(5), [None; 2]);
    }
}
