//! Text to tokens and back, with real `tokenizer.json` documents.
#![allow(clippy::unwrap_used)]

use xt_core::digest::Digest;
use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::dataset::Format;
use xt_data::{Corpus, Text, TextError};

/// A byte-level pair encoding with the merges `t h` and `th e`, in the form that the library itself writes.
fn file(dropout: &str, extra: &str) -> String {
    format!(
        r#"{{"version":"1.0",{extra}"added_tokens":[{{"id":9,"content":"<|end|>","single_word":false,"lstrip":false,
        "rstrip":false,"normalized":false,"special":true}}],"normalizer":null,
        "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
        "post_processor":null,"decoder":{{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}},
        "model":{{"type":"BPE","dropout":{dropout},"unk_token":null,"continuing_subword_prefix":null,
        "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
        "vocab":{{"t":0,"h":1,"e":2,"th":3,"the":4,"Ġ":5,"Ċ":6,"Ã":7,"©":8}},"merges":["t h","th e"]}}}}"#
    )
}

fn load(json: &str) -> Result<Text, TextError> {
    Text::load(&Tokenizer::HuggingFace { digest: Digest::of(json.as_bytes()) }, Some(json.as_bytes()))
}

fn bytes() -> Text {
    Text::load(&Tokenizer::Bytes {}, None).unwrap()
}

#[test]
fn a_tokenizer_file_encodes_and_decodes_back() {
    let text = load(&file("null", "")).unwrap();
    let tokens = text.encode("the he\nthé<|end|>".as_bytes()).unwrap();
    assert_eq!(tokens, [4, 5, 1, 2, 6, 3, 7, 8, 9]);
    assert_eq!(text.decode(&tokens).unwrap(), "the he\nthé<|end|>");
    assert_eq!((text.vocabulary(), text.count(b"the he").unwrap()), (10, 4));
}

#[test]
fn truncation_and_padding_of_the_file_lose_no_text() {
    let extra = r#""truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},
        "padding":{"strategy":{"Fixed":8},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"t"},"#;
    let (cut, whole) = (load(&file("null", extra)).unwrap(), load(&file("null", "")).unwrap());
    assert_eq!(cut.encode(b"the he").unwrap(), whole.encode(b"the he").unwrap());
}

#[test]
fn a_file_that_merges_at_random_is_refused() {
    assert!(matches!(load(&file("0.1", "")), Err(TextError::Random(_))));
    assert!(load(&file("0.0", "")).is_ok());
}

#[test]
fn another_file_than_the_declared_one_is_refused() {
    let tokenizer = Tokenizer::HuggingFace { digest: Digest::of(b"other") };
    let json = file("null", "");
    assert!(matches!(Text::load(&tokenizer, Some(json.as_bytes())), Err(TextError::FileWrong { .. })));
    assert!(matches!(Text::load(&tokenizer, None), Err(TextError::FileMissing(_))));
    assert!(matches!(load("{}"), Err(TextError::FileUnreadable { .. })));
}

#[test]
fn bytes_of_any_kind_survive_the_byte_tokenizer() {
    let all: Vec<u8> = (0..=255).collect();
    let tokens = bytes().encode(&all).unwrap();
    assert_eq!(tokens, (0..256).collect::<Vec<u32>>());
    assert_eq!(bytes().decode(&bytes().encode("Ahab — é".as_bytes()).unwrap()).unwrap(), "Ahab — é");
    assert_eq!(bytes().decode(&[97, 256, 98]).unwrap(), "a\u{fffd}b");
}

#[test]
fn members_are_joined_in_order_with_separators_between_them_only() {
    let text = bytes();
    let mut with = Corpus::new(&text, Format::Text, Some(0), 256).unwrap();
    let row: Vec<u32> = ["ab", "", "c"].iter().flat_map(|member| with.add("m", member.as_bytes()).unwrap()).collect();
    assert_eq!(row, [97, 98, 0, 0, 99]);
    assert_eq!(with.tokens(), 5);
    let mut without = Corpus::new(&text, Format::Text, None, 256).unwrap();
    for member in ["ab", "", "c"] {
        without.add("m", member.as_bytes()).unwrap();
    }
    assert_eq!(without.tokens(), 3);
}

/// Row D-10.
#[test]
fn text_that_is_not_utf8_is_refused_with_its_offset_and_bytes_are_kept() {
    let text = bytes();
    let mut corpus = Corpus::new(&text, Format::Text, None, 256).unwrap();
    for wrong in [&b"ab\ncd\xff"[..], b"ab\ncd\xc0\xaf"] {
        let fault = corpus.add("notes/a.txt", wrong).unwrap_err();
        let expected = TextError::NotUtf8 { offset: 5, line: 2 };
        assert_eq!(fault, TextError::InMember { path: "notes/a.txt".into(), fault: Box::new(expected) });
    }
    assert!(corpus.add("nul.txt", b"a\0b").is_ok());
    let mut any = Corpus::new(&text, Format::Bytes, None, 256).unwrap();
    assert_eq!(any.add("a.bin", b"ab\xff").unwrap(), [97, 98, 255]);
}

/// Row D-05.
#[test]
fn a_token_outside_of_the_vocabulary_is_refused_with_file_line_and_token() {
    let text = bytes();
    let mut corpus = Corpus::new(&text, Format::Text, None, 100).unwrap();
    let fault = corpus.add("a.txt", b"abc\nabcd").unwrap_err();
    assert_eq!(fault.to_string(), "a.txt: token 100 at offset 7 (line 2) is outside of the model's vocabulary of 100");
    let text = load(&file("null", "")).unwrap();
    let mut corpus = Corpus::new(&text, Format::Text, None, 4).unwrap();
    let fault = corpus.add("b.txt", "h\nthe".as_bytes()).unwrap_err();
    assert!(fault.to_string().contains("token 6 at offset 1 (line 1)"), "{fault}");
    assert!(matches!(Corpus::new(&text, Format::Text, Some(4), 4), Err(TextError::Separator { .. })));
}

#[test]
fn a_dataset_of_bytes_does_not_reach_a_text_tokenizer() {
    let text = load(&file("null", "")).unwrap();
    assert_eq!(Corpus::new(&text, Format::Bytes, None, 100).err(), Some(TextError::NeedsText));
}
