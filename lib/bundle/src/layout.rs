//! Names and order of the files of a bundle.

use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::{Bundle, Member, MemberRole};

/// The bundle's document.
pub const BUNDLE: &str = "bundle.json";
/// The digests of all files but itself, as `sha256sum` prints them.
pub const SUMS: &str = "SHA256SUMS";

/// The members in the order in which they stand in an archive: what is small and says what the rest is comes first.
pub fn order(bundle: &Bundle) -> Vec<&Member> {
    let rank = |role| match role {
        MemberRole::Manifest => 0,
        MemberRole::Model | MemberRole::Configuration | MemberRole::Tokenizer | MemberRole::Output => 1,
        MemberRole::Trace => 2,
        MemberRole::Log => 3,
        MemberRole::File => 4,
        MemberRole::Base | MemberRole::Data => 5,
        MemberRole::Worker => 6,
    };
    let mut members: Vec<&Member> = bundle.members.iter().collect();
    members.sort_by(|a, b| (rank(a.role), &a.file.path).cmp(&(rank(b.role), &b.file.path)));
    members
}

/// The text of `SHA256SUMS`: two spaces and a line feed, as `sha256sum` writes them. No path of a bundle holds a
/// character that `sha256sum` would escape.
pub fn sums(bundle: &Bundle) -> String {
    let mut lines: Vec<(String, Digest)> =
        bundle.members.iter().map(|member| (member.file.path.to_string(), member.file.digest)).collect();
    lines.push((BUNDLE.into(), bundle.id()));
    lines.sort();
    lines.into_iter().fold(String::new(), |text, (path, digest)| text + &format!("{}  {path}\n", digest.hex()))
}
