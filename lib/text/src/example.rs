//! The examples of a file: what must not be both learned from and measured on.

use xt_core::manifest::dataset::Format;
use xt_core::verb::evaluate::lines;

use crate::image;

/// The examples of a file: the lines of a text, the rows of a table as they stand there and without the first line, which
/// names the columns, and the images of a file of images. A file that is not in its form has none.
pub fn examples(format: Format, bytes: &[u8]) -> Vec<&[u8]> {
    match format {
        Format::Text | Format::Bytes => lines(bytes).collect(),
        Format::Csv => lines(bytes).skip(1).collect(),
        Format::Idx => image::examples(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_table_is_no_example_and_that_of_a_text_is() {
        let bytes = b"a,b\r\n1,2\n\n3,4";
        assert_eq!(examples(Format::Csv, bytes), [b"1,2", b"3,4"]);
        assert_eq!(examples(Format::Text, bytes), [b"a,b", b"1,2", b"3,4"]);
    }
}
