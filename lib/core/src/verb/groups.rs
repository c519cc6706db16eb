//! Which group of a candidate a parameter belongs to.

use alloc::format;
use alloc::vec::Vec;

use crate::fault::Faults;
use crate::manifest::candidate::{Candidate, Decay, Group, Optimizer, Treatment};
use crate::verb::adapter::trainable;

/// Whether `pattern` fits the whole `name`: `*` stands for any characters, also none, `?` for one, and all others for
/// themselves.
pub fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star stands, and how much of the name it had taken.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(sign) if *sign == '?' || *sign == name[n] => (p, n) = (p + 1, n + 1),
            _ => {
                // The star takes one character more, and the rest is tried again.
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                (p, n) = (at + 1, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|sign| *sign == '*')
}

/// The group of a parameter: the first whose pattern fits, by its place.
pub fn group_of(groups: &[Group], name: &str) -> Option<usize> {
    groups.iter().position(|group| fits(&group.pattern, name))
}

/// How one parameter is updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Handling {
    /// The learning rate is multiplied by this.
    pub rate_factor: f64,
    /// How strongly it decays.
    pub decay: f64,
}

/// How the parameter `name` of so many dimensions is updated; `None` when it is frozen.
pub fn handling(optimizer: &Optimizer, groups: &[Group], name: &str, dimensions: usize) -> Option<Handling> {
    let decays = optimizer.decay() == Decay::All || dimensions >= 2;
    let plain = if decays { optimizer.weight_decay().get() } else { 0.0 };
    match group_of(groups, name).map(|place| &groups[place].treatment) {
        None => Some(Handling { rate_factor: 1.0, decay: plain }),
        Some(Treatment::Frozen {}) => None,
        Some(Treatment::Trained { learning_rate_factor, weight_decay }) => {
            let decay = weight_decay.map_or(plain, crate::number::Finite::get);
            Some(Handling { rate_factor: learning_rate_factor.get(), decay })
        }
    }
}

/// Notes every pattern that fits no parameter, or none that an earlier one left, and groups that leave nothing to train.
pub(crate) fn check(candidate: &Candidate, faults: &mut Faults) {
    let groups = candidate.groups.as_slice();
    if groups.is_empty() {
        return;
    }
    let all = trainable(&candidate.model, &candidate.base);
    let mut counts: Vec<u64> = groups.iter().map(|_| 0).collect();
    let mut trained = false;
    for parameter in &all {
        if let Some(place) = group_of(groups, &parameter.name) {
            counts[place] += 1;
        }
        trained |= handling(&candidate.optimizer, groups, &parameter.name, parameter.shape.len()).is_some();
    }
    for (place, _) in counts.iter().enumerate().filter(|(_, count)| **count == 0) {
        let pattern = &groups[place].pattern;
        let message = if all.iter().any(|parameter| fits(pattern, &parameter.name)) {
            format!("every parameter that {pattern:?} fits belongs to an earlier group already")
        } else {
            let known = all.first().map_or("", |parameter| parameter.name.as_str());
            format!("{pattern:?} fits none of the {} parameters, whose names are such as {known}", all.len())
        };
        faults.add(format!("/groups/{place}/pattern"), "groups.nothing", message);
    }
    if !trained {
        faults.add("/groups", "groups.frozen", "every parameter is frozen, so nothing would be trained");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_takes_what_it_must_and_a_pattern_fits_whole_names() {
        for (pattern, name) in [
            ("a.b", "a.b"),
            ("*", ""),
            ("*", "a.b"),
            ("a*", "a"),
            ("*.bias", "h.0.attn.bias"),
            ("h.*.attn.*", "h.11.attn.c_proj.weight"),
            ("*a*a*", "xaxax"),
            ("h.?.x", "h.7.x"),
            ("*.weight*", "a.weight.weight"),
            ("**", "x"),
            ("*ab", "aab"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("a.b", "a.bc"),
            ("a.b", "xa.b"),
            ("", "a"),
            ("?", ""),
            ("h.?.x", "h.11.x"),
            ("*.bias", "h.0.bias.x"),
            ("*a*a", "xax"),
            ("a.b", "axb"),
            ("A", "a"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
