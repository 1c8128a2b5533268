use super::*;

fn signed(file: &[u8]) -> (SigningKey, String) {
    let key = SigningKey::generate();
    let signature = key.sign(file, "net.saggar", 1_000_000);
    (key, signature)
}

#[test]
fn a_signature_holds_for_its_file_and_key_alone() {
    let (key, signature) = signed(b"content");
    let trusted = [SigningKey::generate().verifying_key(), key.verifying_key()];
    assert_eq!(verify(b"content", Some(&signature), &trusted).unwrap().id(), key.verifying_key().id());
    assert!(matches!(verify(b"Content", Some(&signature), &trusted), Err(SignatureError::Changed { .. })));
    assert!(matches!(verify(b"content", Some(&signature), &trusted[..1]), Err(SignatureError::OtherKey { .. })));
    assert!(matches!(verify(b"content", None, &trusted), Err(SignatureError::Missing { .. })));
    let other = SigningKey::from_str(&key.to_file()).unwrap();
    assert_eq!(other.sign(b"content", "net.saggar", 1_000_000), signature, "Ed25519 is deterministic");
}

#[test]
fn a_change_of_any_byte_of_a_signature_is_refused() {
    let (key, signature) = signed(b"content");
    let trusted = [key.verifying_key()];
    let covered = signature.find('\n').unwrap() + 1;
    let newlines = signature.match_indices('\n').map(|(at, _)| at).collect::<Vec<_>>();
    for at in (covered..signature.len()).filter(|at| !newlines.contains(at)) {
        let mut changed = signature.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(verify(b"content", Some(&changed), &trusted).is_err(), "byte {at}");
    }
    for length in 0..signature.len() - 1 {
        assert!(verify(b"content", Some(&signature[..length]), &trusted).is_err(), "{length} bytes");
    }
}

#[test]
fn keys_are_read_as_text_and_as_files() {
    let key = SigningKey::generate();
    let public = key.verifying_key();
    assert!(public.text.starts_with("RW") && public.to_file().contains(&public.id()));
    for text in [public.text.clone(), public.to_file()] {
        assert_eq!(text.parse::<VerifyingKey>().unwrap().text, public.text);
    }
    for bad in ["", "untrusted comment: nothing\n", "RW", "not base64!", &STANDARD.encode([0; 42])] {
        assert!(matches!(bad.parse::<VerifyingKey>(), Err(SignatureError::BadPublicKey { .. })), "{bad}");
        assert!(matches!(bad.parse::<SigningKey>(), Err(SignatureError::BadSecretKey { .. })), "{bad}");
    }
    let mut damaged = key.to_file();
    damaged.replace_range(160..161, if &damaged[160..161] == "A" { "B" } else { "A" });
    assert!(matches!(damaged.parse::<SigningKey>(), Err(SignatureError::BadSecretKey { .. })), "{damaged}");
}
