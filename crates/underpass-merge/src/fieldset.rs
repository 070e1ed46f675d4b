//! A set of fields, kept as a tree along their paths.
//!
//! A container can be in the set itself, have parts in the set, or both: owning `.metadata.labels` and owning
//! `.metadata.labels.app` are two things. The operations therefore go path by path, except where they say "recursive".

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use crate::path::PathElement;

/// A set of paths. No branch of the tree is without a member, so that equal sets are equal trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    branches: BTreeMap<PathElement, Branch>,
}

/// What the set says about one part of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) member: bool,
    pub(crate) below: FieldSet,
}

impl FieldSet {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    /// Adds one field. The empty path is the whole document, which nobody owns.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let branch = self.branches.entry(first.clone()).or_default();
        if rest.is_empty() {
            branch.member = true;
        } else {
            branch.below.insert(rest);
        }
    }

    #[must_use]
    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let Some(branch) = self.branches.get(first) else { return false };
        if rest.is_empty() { branch.member } else { branch.below.has(rest) }
    }

    /// The fields that are in either set.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        for (element, branch) in other.branches {
            self.put(element, branch.member, branch.below);
        }
        self
    }

    /// The fields that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut common = Self::default();
        for (element, branch) in &self.branches {
            if let Some(theirs) = other.branches.get(element) {
                let below = branch.below.intersection(&theirs.below);
                common.put(element.clone(), branch.member && theirs.member, below);
            }
        }
        common
    }

    /// Whether the intersection has a field.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        let (few, many) = if self.branches.len() <= other.branches.len() { (self, other) } else { (other, self) };
        few.branches.iter().any(|(element, a)| {
            many.branches.get(element).is_some_and(|b| (a.member && b.member) || a.below.intersects(&b.below))
        })
    }

    /// The fields that are in this set and not in the other.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.branches {
            self.edit(element, |branch| {
                branch.member &= !theirs.member;
                branch.below = std::mem::take(&mut branch.below).difference(&theirs.below);
            });
        }
        self
    }

    /// The fields of this set that are neither in the other nor below a field that is.
    #[must_use]
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.branches {
            self.edit(element, |branch| {
                if theirs.member {
                    *branch = Branch::default();
                } else {
                    branch.below = std::mem::take(&mut branch.below).recursive_difference(&theirs.below);
                }
            });
        }
        self
    }

    /// The fields that have no other field of the set below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let mut leaves = Self::default();
        for (element, branch) in &self.branches {
            let is_leaf = branch.member && branch.below.is_empty();
            leaves.put(element.clone(), is_leaf, branch.below.leaves());
        }
        leaves
    }

    /// Every path, those that end at a container before those that go on below it.
    pub fn for_each(&self, mut visit: impl FnMut(&[PathElement])) {
        self.visit_below(&mut Vec::new(), &mut visit);
    }

    /// What the set says about one part, if it says anything.
    pub(crate) fn get(&self, element: &PathElement) -> Option<&Branch> {
        self.branches.get(element)
    }

    pub(crate) fn branches(&self) -> impl Iterator<Item = (&PathElement, &Branch)> {
        self.branches.iter()
    }

    pub(crate) fn branches_mut(&mut self) -> impl Iterator<Item = (&PathElement, &mut Branch)> {
        self.branches.iter_mut()
    }

    /// Adds a part of a container: itself if `member`, and what is below it.
    pub(crate) fn put(&mut self, element: PathElement, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        match self.branches.entry(element) {
            Slot::Vacant(slot) => {
                slot.insert(Branch { member, below });
            }
            Slot::Occupied(mut slot) => {
                let branch = slot.get_mut();
                branch.member |= member;
                branch.below = std::mem::take(&mut branch.below).union(below);
            }
        }
    }

    /// Changes what is said about one part, and drops it if nothing is left.
    fn edit(&mut self, element: &PathElement, change: impl FnOnce(&mut Branch)) {
        let Some(branch) = self.branches.get_mut(element) else { return };
        change(branch);
        if !branch.member && branch.below.is_empty() {
            self.branches.remove(element);
        }
    }

    fn visit_below(&self, path: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for (element, _) in self.branches.iter().filter(|(_, branch)| branch.member) {
            path.push(element.clone());
            visit(path);
            path.pop();
        }
        for (element, branch) in self.branches.iter().filter(|(_, branch)| !branch.below.is_empty()) {
            path.push(element.clone());
            branch.below.visit_below(path, visit);
            path.pop();
        }
    }
}

impl<const N: usize> From<[&[&str]; N]> for FieldSet {
    /// A set of plain field names, as code that knows its fields writes it.
    fn from(paths: [&[&str]; N]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }
}
