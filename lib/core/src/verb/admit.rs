//! Admission of data: which files become members, in which split, and whether a dataset manifest is sound (L80–L83).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::{Digest, Hasher};
use crate::fault::Faults;
use crate::field::child;
use crate::left_out::LeftOut;
use crate::manifest::dataset::{Count, Dataset, Exclusion, Format, GroupBy, Member, Splitting};
use crate::name::Name;
use crate::relpath::RelativePath;

/// The split of every group that no other split takes.
pub const TRAIN: &str = "train";

/// A file that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// Its path.
    pub path: RelativePath,
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

/// Makes the manifest of the offered files, less the excluded paths (each with its reason).
pub fn admit(
    format: Format,
    offered: &[Offered],
    excluded: &BTreeMap<RelativePath, String>,
    splitting: Splitting,
) -> Result<Dataset, Faults> {
    let mut faults = Faults::new();
    let known: BTreeSet<&RelativePath> = offered.iter().map(|file| &file.path).collect();
    for path in excluded.keys().filter(|path| !known.contains(path)) {
        faults.add("/exclusions", "data.exclusion", format!("no offered file has the excluded path {path}"));
    }
    let (out, kept): (Vec<&Offered>, Vec<&Offered>) =
        offered.iter().partition(|file| excluded.contains_key(&file.path));
    let groups = groups(format, &kept, splitting.group_by);
    let splits = deal(&groups, &splitting, &mut faults);
    let mut members: Vec<Member> = kept
        .iter()
        .zip(&groups)
        .filter_map(|(file, group)| {
            let split = splits.get(group)?.clone();
            Some(Member {
                path: file.path.clone(),
                digest: file.digest,
                bytes: file.bytes,
                group: group.clone(),
                split,
            })
        })
        .collect();
    members.sort_by(|a, b| a.path.cmp(&b.path));
    let mut exclusions: Vec<Exclusion> = out
        .iter()
        .map(|file| Exclusion {
            path: file.path.clone(),
            digest: file.digest,
            reason: excluded.get(&file.path).cloned().unwrap_or_default(),
        })
        .collect();
    exclusions.sort_by(|a, b| a.path.cmp(&b.path));
    let counts = count(&members);
    let dataset = Dataset { format, members, exclusions, splitting, counts, terms: LeftOut(None) };
    check(&dataset, &mut faults);
    faults.or(dataset)
}

/// The lineage group of each file: files that must not be torn apart share one (L82).
fn groups(format: Format, files: &[&Offered], by: GroupBy) -> Vec<String> {
    let name = |file: &Offered| match by {
        // Labels stay with their images.
        GroupBy::File if matches!(format, Format::Idx | Format::Npy) => images_of(file.path.as_str()),
        GroupBy::File => file.path.to_string(),
        GroupBy::Folder => file.path.as_str().rsplit_once('/').map_or(".", |(folder, _)| folder).to_string(),
    };
    // Files of equal content are one lineage wherever they lie: groups that share a digest become one, named by the
    // smallest name among them.
    let mut names: Vec<String> = files.iter().map(|file| name(file)).collect();
    loop {
        let mut smallest: BTreeMap<Digest, String> = BTreeMap::new();
        for (file, name) in files.iter().zip(&names) {
            let entry = smallest.entry(file.digest).or_insert_with(|| name.clone());
            if name < entry {
                entry.clone_from(name);
            }
        }
        let mut renamed: BTreeMap<String, String> = BTreeMap::new();
        for (file, name) in files.iter().zip(&names) {
            let target = &smallest[&file.digest];
            let entry = renamed.entry(name.clone()).or_insert_with(|| target.clone());
            if target < entry {
                entry.clone_from(target);
            }
        }
        let next: Vec<String> = names.iter().map(|name| renamed[name].clone()).collect();
        if next == names {
            return names;
        }
        names = next;
    }
}

/// The path of the images that a file of labels belongs to, which is named as the MNIST files are; other paths as they are.
pub fn images_of(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let name = name.replace("labels", "images").replace("idx1", "idx3");
    if folder.is_empty() { name } else { format!("{folder}/{name}") }
}

/// Deals the groups out to the splits.
fn deal(groups: &[String], splitting: &Splitting, faults: &mut Faults) -> BTreeMap<String, Name> {
    let mut order: Vec<(Digest, &String)> = groups
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|group| (place(&splitting.salt, group), group))
        .collect();
    order.sort();
    let mut remaining = order.into_iter();
    let count = remaining.len() as u64;
    let mut splits = BTreeMap::new();
    for (split, permille) in &splitting.permille {
        let Some(name) = Name::new(split).filter(|name| name.as_str() != TRAIN) else {
            let message = format!("{split:?} cannot be the name of a split; `{TRAIN}` takes what is left over");
            faults.add(child("/splitting/permille", split), "data.split", message);
            continue;
        };
        let share = (count * permille / 1000).max(1);
        for _ in 0..share {
            if let Some((_, group)) = remaining.next() {
                splits.insert(group.clone(), name.clone());
            }
        }
    }
    if remaining.len() == 0 && count > 0 {
        let message = format!("{count} lineage groups are too few for these splits: none is left for `{TRAIN}`");
        faults.add("/splitting/permille", "data.split", message);
    }
    if let Some(train) = Name::new(TRAIN) {
        splits.extend(remaining.map(|(_, group)| (group.clone(), train.clone())));
    }
    splits
}

/// Where a group stands in the order in which groups are dealt out.
fn place(salt: &str, group: &str) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(salt.as_bytes());
    hasher.update(&[0]);
    hasher.update(group.as_bytes());
    hasher.finish()
}

fn count(members: &[Member]) -> BTreeMap<String, Count> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for member in members {
        let split = member.split.as_str();
        let entry = counts.entry(split.to_string()).or_insert(Count { members: 0, bytes: 0, groups: 0 });
        entry.members += 1;
        entry.bytes += member.bytes;
        groups.entry(split).or_default().insert(&member.group);
    }
    for (split, groups) in groups {
        if let Some(entry) = counts.get_mut(split) {
            entry.groups = groups.len() as u64;
        }
    }
    counts
}

/// Notes what makes a dataset manifest unsound, whoever wrote it.
pub fn check(dataset: &Dataset, faults: &mut Faults) {
    dataset.terms.0.iter().for_each(|terms| terms.check("/terms", faults));
    if dataset.members.is_empty() {
        faults.add("/members", "data.empty", "a dataset needs at least one member");
    }
    for (index, pair) in dataset.members.windows(2).enumerate() {
        if pair[0].path >= pair[1].path {
            let message = format!("{} does not come after {} in byte order, once", pair[1].path, pair[0].path);
            faults.add(format!("/members/{}/path", index + 1), "data.order", message);
        }
    }
    for (index, pair) in dataset.exclusions.windows(2).enumerate() {
        if pair[0].path >= pair[1].path {
            let message = format!("{} does not come after {} in byte order, once", pair[1].path, pair[0].path);
            faults.add(format!("/exclusions/{}/path", index + 1), "data.order", message);
        }
    }
    let excluded: BTreeSet<Digest> = dataset.exclusions.iter().map(|exclusion| exclusion.digest).collect();
    let mut split_of: BTreeMap<&str, &Name> = BTreeMap::new();
    let mut group_of: BTreeMap<Digest, &str> = BTreeMap::new();
    for (index, member) in dataset.members.iter().enumerate() {
        let at = format!("/members/{index}");
        if member.bytes == 0 {
            faults.add(at.clone(), "data.empty", format!("{} is empty", member.path));
        }
        if excluded.contains(&member.digest) {
            let message = format!("{} has the content of an excluded file", member.path);
            faults.add(at.clone(), "data.excluded", message);
        }
        if *split_of.entry(&member.group).or_insert(&member.split) != &member.split {
            let message = format!("the lineage group {:?} is torn between splits", member.group);
            faults.add(at.clone(), "data.lineage", message);
        }
        if *group_of.entry(member.digest).or_insert(&member.group) != member.group {
            let message = format!("{} has the content of a member of another lineage group", member.path);
            faults.add(at, "data.lineage", message);
        }
    }
    if count(&dataset.members) != dataset.counts {
        faults.add("/counts", "data.counts", "the counts do not agree with the members");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn file(path: &str, content: &[u8]) -> Offered {
        Offered { path: RelativePath::new(path).unwrap(), digest: Digest::of(content), bytes: content.len() as u64 }
    }

    fn splitting(dev: u64) -> Splitting {
        let permille = if dev == 0 { BTreeMap::new() } else { BTreeMap::from([("dev".into(), dev)]) };
        Splitting { group_by: GroupBy::File, salt: "s".into(), permille }
    }

    fn codes(result: Result<Dataset, Faults>) -> Vec<&'static str> {
        result.err().unwrap_or_default().0.iter().map(|fault| fault.code).collect()
    }

    #[test]
    fn the_order_of_offering_does_not_matter() {
        let mut files: Vec<Offered> = (0..9u8).map(|i| file(&format!("f{i}"), &[i])).collect();
        let one = admit(Format::Bytes, &files, &BTreeMap::new(), splitting(300)).unwrap();
        files.reverse();
        assert_eq!(admit(Format::Bytes, &files, &BTreeMap::new(), splitting(300)), Ok(one.clone()));
        assert_eq!(one.counts["dev"].groups, 2);
        let mut other = splitting(300);
        other.salt = "t".into();
        assert_ne!(admit(Format::Bytes, &files, &BTreeMap::new(), other).unwrap().members, one.members);
    }

    #[test]
    fn copies_of_one_file_never_stand_in_two_splits() {
        let files: Vec<Offered> = (0..40u8).map(|i| file(&format!("f{i:02}"), &[i % 20])).collect();
        let dataset = admit(Format::Bytes, &files, &BTreeMap::new(), splitting(500)).unwrap();
        let mut split_of = BTreeMap::new();
        for member in &dataset.members {
            assert_eq!(split_of.entry(member.digest).or_insert(&member.split), &&member.split);
        }
        assert_eq!(dataset.counts["dev"].groups, 10);
    }

    #[test]
    fn an_excluded_content_cannot_come_back_under_another_name() {
        let files = [file("a", b"1"), file("b", b"2"), file("c", b"1")];
        let out = BTreeMap::from([(RelativePath::new("a").unwrap(), "licence".to_string())]);
        assert_eq!(codes(admit(Format::Bytes, &files, &out, splitting(0))), ["data.excluded"]);
        let dataset = admit(Format::Bytes, &files[..2], &out, splitting(0)).unwrap();
        assert_eq!((dataset.members.len(), dataset.exclusions.len()), (1, 1));
    }

    #[test]
    fn empty_files_missing_groups_and_stray_exclusions_are_named() {
        let out = BTreeMap::from([(RelativePath::new("z").unwrap(), String::new())]);
        assert_eq!(
            codes(admit(Format::Bytes, &[file("a", b"")], &out, splitting(0))),
            vec!["data.exclusion", "data.empty"]
        );
        assert_eq!(codes(admit(Format::Bytes, &[], &BTreeMap::new(), splitting(0))), ["data.empty"]);
        assert_eq!(codes(admit(Format::Bytes, &[file("a", b"1")], &BTreeMap::new(), splitting(10))), ["data.split"]);
        let twice = [file("a", b"1"), file("a", b"2")];
        assert_eq!(codes(admit(Format::Bytes, &twice, &BTreeMap::new(), splitting(0))), ["data.order"]);
    }

    #[test]
    fn a_manifest_edited_by_hand_is_checked() {
        let files = [file("a", b"1"), file("b", b"2")];
        let mut dataset = admit(Format::Bytes, &files, &BTreeMap::new(), splitting(0)).unwrap();
        dataset.members[1].bytes = 5;
        dataset.members[1].group = "a".into();
        dataset.members[1].split = Name::new("dev").unwrap();
        let mut faults = Faults::new();
        check(&dataset, &mut faults);
        let found: Vec<&str> = faults.0.iter().map(|fault| fault.code).collect();
        assert_eq!(found, ["data.lineage", "data.counts"]);
    }
}
