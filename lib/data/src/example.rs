//! The examples of a file: what must not be both learned from and measured on.

use std::borrow::Cow;

use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::dataset::Format;
use xt_core::verb::evaluate::lines;

use crate::{image, labelled, records, table, tensors};

/// The examples of a file: the lines of a text, records, texts without their labels, what the rows of a table say to the model, images, and
/// the inputs of tensors. A file that is not in its form has none.
pub fn examples<'a>(tokenizer: &Tokenizer, bytes: &'a [u8]) -> Vec<Cow<'a, [u8]>> {
    match tokenizer {
        Tokenizer::Bytes {} | Tokenizer::HuggingFace { .. } => lines(bytes).map(Cow::Borrowed).collect(),
        Tokenizer::Records { .. } => records::examples(bytes).into_iter().map(Cow::Owned).collect(),
        Tokenizer::Labelled { .. } => labelled::examples(bytes).into_iter().map(Cow::Owned).collect(),
        Tokenizer::Table { columns, .. } => table::examples(columns, bytes).into_iter().map(Cow::Owned).collect(),
        Tokenizer::Image { .. } => image::examples(bytes),
        Tokenizer::Tensors { inputs, .. } => {
            tensors::examples(Some(inputs), bytes).into_iter().map(Cow::Borrowed).collect()
        }
    }
}

/// The examples of a file by its form alone, for whoever knows no columns: lines, those of a table without the one that
/// names its columns, records, images, samples of tensors.
pub fn plain_examples(format: Format, bytes: &[u8]) -> Vec<Cow<'_, [u8]>> {
    match format {
        Format::Text | Format::Bytes => lines(bytes).map(Cow::Borrowed).collect(),
        Format::Csv => lines(bytes).skip(1).map(Cow::Borrowed).collect(),
        Format::Jsonl => records::examples(bytes).into_iter().map(Cow::Owned).collect(),
        Format::Idx | Format::Npy | Format::Png => image::examples(bytes),
        Format::Safetensors => tensors::examples(None, bytes).into_iter().map(Cow::Borrowed).collect(),
    }
}

#[cfg(test)]
mod tests {
    use xt_core::manifest::encoding::{Column, Holds, Missing, NonFiniteCells, Scaling};

    use super::*;

    #[test]
    fn the_first_line_of_a_table_is_no_example_and_that_of_a_text_is() {
        let bytes = b"a,b\r\n1,2\n\n3,4";
        assert_eq!(examples(&Tokenizer::Bytes {}, bytes), [&b"a,b"[..], b"1,2", b"3,4"]);
        assert_eq!(examples(&table(), bytes).len(), 2);
    }

    /// A number a, a category b, an id and an ignored note.
    fn table() -> Tokenizer {
        let column = |name: &str, holds| Column { name: name.into(), holds };
        let number = Holds::Number { missing: Missing::Fill, non_finite: NonFiniteCells::Keep };
        let levels = vec!["x".into(), "y".into()];
        Tokenizer::Table {
            columns: vec![
                column("a", number),
                column("b", Holds::Category { levels, missing: Missing::Refuse }),
                column("id", Holds::Id {}),
                column("note", Holds::Ignored {}),
            ],
            scaling: Scaling::None,
        }
    }

    #[test]
    fn rows_that_say_the_same_to_a_model_are_one_example_however_they_are_written() {
        let first = examples(&table(), b"a,b,id,note\n0.5,x,1,here\n");
        for again in
            ["a,b,id,note\n0.50,x,2,here\n", "a,b,id,note\n+5e-1,\"x\",1,there\n", "note,id,b,a\nhere,7,x,\"0.5\"\r\n"]
        {
            assert_eq!(examples(&table(), again.as_bytes()), first, "{again}");
        }
        // The controls: another number, and another category.
        for other in ["a,b,id,note\n0.51,x,1,here\n", "a,b,id,note\n0.5,y,1,here\n"] {
            assert_ne!(examples(&table(), other.as_bytes()), first, "{other}");
        }
    }
}
