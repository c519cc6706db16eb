//! `xt.dataset/1`: admitted data. Members and exclusions are named by digest, so no later run can widen them (L80–L83).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::left_out::LeftOut;
use crate::manifest::terms::Terms;
use crate::name::Name;
use crate::relpath::RelativePath;
use crate::tag;

crate::record! {
    /// Admitted data: members and exclusions by digest, in whole-path byte order.
    pub struct Dataset as tag::DATASET {
        /// What the bytes are.
        format: Format,
        /// Admitted files, sorted by the bytes of the whole path.
        members: Vec<Member>,
        /// Files that were offered and kept out, sorted likewise; none of these digests may be a member.
        exclusions: Vec<Exclusion>,
        /// How splits were assigned.
        splitting: Splitting,
        /// Per split: members, bytes and lineage groups.
        counts: BTreeMap<String, Count>,
        /// Licence and classes of the data, as whoever admitted it declared them; left out when nothing was declared.
        terms: LeftOut<Terms>,
    }
}

crate::words! {
    /// What the bytes are.
    pub enum Format {
        /// Text in UTF-8.
        Text "text",
        /// Any bytes; only a byte tokenizer reads them.
        Bytes "bytes",
        /// JSON Lines in UTF-8: each line is an object with the members `prompt` and `completion`, or `text`, all of them strings. Empty lines are no records.
        Jsonl "jsonl",
        /// Comma-separated values in UTF-8 (RFC 4180): the first line names the columns.
        Csv "csv",
        /// Images and labels in the form of the MNIST files, two files each: `images` in the name of one is `labels` in that of the other, and `idx3` is `idx1`. The two are one lineage group.
        Idx "idx",
        /// Images and labels as NumPy saves arrays (`.npy`), two files each, named as for `idx`. Images are of (samples, height, width) or (samples, channels, height, width), of bytes (`u1`) or little-endian binary32 (`<f4`), in C order; labels of (samples), `u1` or `<i8`. Objects, which are Python pickles, are refused.
        Npy "npy",
        /// Images in folders, one PNG file each of 8-bit grey or RGB; the folder that holds an image is its label.
        Png "png",
        /// Tensors by name, as the safetensors library saves them.
        Safetensors "safetensors",
    }
}

crate::record! {
    /// An admitted file.
    pub struct Member {
        /// Its path as offered, relative.
        path: RelativePath,
        /// SHA-256 of its bytes.
        digest: Digest,
        /// Its size in bytes.
        bytes: u64,
        /// Its lineage group: files that share one stay in one split.
        group: String,
        /// Its split.
        split: Name,
    }
}

crate::record! {
    /// A file that was offered and kept out.
    pub struct Exclusion {
        /// Its path as offered.
        path: RelativePath,
        /// SHA-256 of its bytes.
        digest: Digest,
        /// Why.
        reason: String,
    }
}

crate::record! {
    /// How splits were assigned: groups are ordered by SHA-256 of salt, a zero byte and the group's name, then dealt out by fraction.
    pub struct Splitting {
        /// What a lineage group is.
        group_by: GroupBy,
        /// Mixed into the order of the groups.
        salt: String,
        /// Parts of a thousand that each split beside `train` takes, at least one group each.
        permille: BTreeMap<String, u64>,
    }
}

crate::words! {
    /// What a lineage group is.
    pub enum GroupBy {
        /// Each file is its own; files of equal content share one.
        File "file",
        /// The folder that holds the file.
        Folder "folder",
    }
}

crate::record! {
    /// What a split holds.
    pub struct Count {
        /// Files.
        members: u64,
        /// Bytes.
        bytes: u64,
        /// Lineage groups.
        groups: u64,
    }
}
