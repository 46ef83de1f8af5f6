use super::*;

#[test]
fn rules_seventy_deep_are_read_and_five_thousand_are_not() {
    let nested = |n: usize| {
        format!("domain: d\ndescriptors: {}{}", "[{key: a, descriptors: ".repeat(n), "}]".repeat(n))
    };
    assert!(read(nested(70).as_bytes()).is_ok());
    assert!(read(nested(250).as_bytes()).is_ok());
    for n in [256, 5_000, 100_000] {
        let error = read(nested(n).as_bytes()).unwrap_err();
        assert!(error.found.contains("nested more than 512 deep") && error.at.line == 2, "{error:?}");
    }
    let block: String = (0..1_000).map(|n| format!("{}descriptors:\n", " ".repeat(n))).collect();
    assert!(read(block.as_bytes()).unwrap_err().found.contains("nested more than 512 deep"));
    let dashes = "- ".repeat(5_000);
    assert!(read(dashes.as_bytes()).unwrap_err().found.contains("nested more than 512 deep"));
}

#[test]
fn a_thread_with_a_small_stack_reads_the_deepest_file() {
    let n = MAX_DEPTH / 2 - 1;
    let text = format!("domain: d\ndescriptors: {}{}", "[{key: a, descriptors: ".repeat(n), "}]".repeat(n));
    let load = move || {
        let file = crate::rules::RuleFile { name: "deep.yaml".to_owned(), bytes: text.into_bytes() };
        crate::rules::RuleSet::load(&[file], &crate::rules::LoadOptions::default())
            .map(|loaded| loaded.rules.n_domains())
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(load).unwrap();
    assert_eq!(thread.join().unwrap().ok(), Some(1));
}

#[test]
fn aliases_of_aliases_are_bounded() {
    let mut bomb = "domain: d\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..40 {
        let alias = format!("*a{}", n - 1);
        bomb += &format!("a{n}: &a{n} [{}]\n", vec![alias; 9].join(", "));
    }
    let error = read(bomb.as_bytes()).unwrap_err();
    assert!(error.found.contains("unfold to more than 400000 values"), "{error:?}");
    assert!((4..10).contains(&error.at.line), "{error:?}");
}

#[test]
fn aliases_do_not_make_a_tree_deeper_than_the_bound() {
    let mut ladder = "a0: &a0 []\n".to_owned();
    for n in 1..=MAX_DEPTH {
        ladder += &format!("a{n}: &a{n} [*a{}]\n", n - 1);
    }
    assert!(read(ladder.as_bytes()).unwrap_err().found.contains("nested more than 512 deep"));
}

#[test]
fn repeated_keys_by_the_thousand_take_no_time() {
    let yaml: String =
        std::iter::once("domain: d\n".to_owned()).chain((0..20_000).map(|n| format!("k{n}: 1\n"))).collect();
    let file = crate::rules::RuleFile { name: "wide.yaml".to_owned(), bytes: yaml.into_bytes() };
    let problems = crate::rules::RuleSet::load(&[file], &crate::rules::LoadOptions::default()).unwrap_err();
    assert_eq!(problems.total(), 20_000);
}

#[test]
fn documents_that_hold_nothing_are_not_counted() {
    let others = |text: &str| read(text.as_bytes()).unwrap().ignored.map(|(at, n)| (at.line, n));
    assert_eq!(others("a: 1\n"), None);
    assert_eq!(others("a: 1\n---\n"), None);
    assert_eq!(others("a: 1\n---\n# only words\n---\nb: 1\n---\n- c\n"), Some((4, 2)));
}
