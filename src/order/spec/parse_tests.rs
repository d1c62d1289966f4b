use super::*;

fn spec(text: &str) -> OrderSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_example_of_the_manual() {
    let spec = spec("torch-distributed:seed=0:world=8:rank=0-7:root=train:files=imagefolder:batch=256:workers=8:drop_last=false:start=0");
    assert_eq!(spec.kind, OrderKind::TorchDistributed);
    assert_eq!((spec.seed, spec.world, spec.ranks.as_slice()), (0, 8, [0, 1, 2, 3, 4, 5, 6, 7].as_slice()));
    assert_eq!((spec.root.as_str(), spec.id.as_str(), &spec.files), ("train", "train", &SampleRule::ImageFolder));
    assert_eq!((spec.batch, spec.workers, spec.drop_last, spec.start), (Some(256), Some(8), false, 0));
}

#[test]
fn what_is_printed_parses_to_the_same() {
    for text in [
        "auto",
        "none",
        "sequential",
        "sequential:world=4:rank=1+3:drop_last=true",
        "list:/data/a:b.txt:root=x",
        "torch-distributed",
        "torch-distributed:world=16:rank=8-11+15:seed=-1:root=/a/b/:files=list:c:epoch=3:start=5:epochs=90:id=train",
        "torch-random:seed=18446744073709551615:offset=13005:stride=6:batch=4:drop_last=true",
        "torch-random:seed=1:generator=loader:workers=0:prefetch_factor=4",
        "torch-random:seed=1:generator=sampler:files=sorted",
        "torch-randperm:seed=42:batch=7:drop_last_batch=true",
    ] {
        let first = spec(text);
        assert_eq!(spec(&first.to_string()), first, "{text} -> {first}");
    }
    assert_eq!(spec("list:/data/a:b.txt").files, SampleRule::List("/data/a:b.txt".into()));
    assert_eq!(spec("torch-distributed:world=16:rank=8-11+15").ranks_text(), "8-11+15");
    assert_eq!(spec("torch-distributed:seed=-1").seed, u64::MAX);
    assert_eq!(spec("torch-distributed:world=3").ranks, [0, 1, 2]);
}

#[test]
fn drop_last_is_the_samplers_where_there_is_one() {
    let sampler = spec("torch-distributed:world=2:drop_last=true");
    assert_eq!((sampler.drop_last, sampler.drop_last_batch), (true, false));
    let loader = spec("sequential:drop_last=true:batch=4");
    assert_eq!((loader.drop_last, loader.drop_last_batch), (false, true));
}

/// Each refusal names the bad part and the remedy, in one line.
#[test]
fn bad_specifications_are_refused_by_name() {
    for (text, part, remedy) in [
        ("", "\"\"", "torch-distributed, torch-random"),
        ("torch-distribute", "\"torch-distribute\"", "did you mean torch-distributed?"),
        ("torch-distributed:seed=x", "seed=x", "whole number"),
        ("torch-distributed:seed=18446744073709551616", "seed=18446744073709551616", "18446744073709551615"),
        ("torch-distributed:world=0", "world=0", "from 1"),
        ("torch-distributed:world=8:rank=8", "rank 8", "world=8"),
        ("torch-distributed:world=8:rank=0-4294967295", "rank 4294967295", "world=8"),
        ("torch-distributed:world=8:rank=3-1", "3-1", "1-3"),
        ("torch-distributed:world=8:rank=1+1", "rank 1", "twice"),
        ("torch-distributed:world=8:rank=0-7+0-7+0-7", "rank 0", "twice"),
        ("torch-distributed:world=8:rank=", "\"\"", "0-7"),
        ("torch-distributed:world=8:rank=0,2", "comma", "+"),
        ("torch-distributed:sed=1", "\"sed\"", "did you mean seed?"),
        ("torch-distributed:colour=1", "\"colour\"", "prefetch_factor"),
        ("torch-distributed:seed=1:seed=2", "seed", "twice"),
        ("torch-distributed:seed", "\"seed\"", "key=value"),
        ("torch-distributed:batch=0", "batch=0", "from 1"),
        ("torch-distributed:drop_last=yes", "drop_last=yes", "true nor false"),
        ("torch-distributed:drop_last_batch=true", "batch", "add batch=SIZE"),
        ("torch-distributed:files=glob", "\"glob\"", "imagefolder, sorted or list:FILE"),
        ("torch-distributed:root=../x", "root=../x", "root=train"),
        ("torch-distributed:root=a//x", "root=a//x", "root=train"),
        ("torch-distributed:id=", "id=", "leave it out"),
        ("torch-distributed:generator=loader", "generator", "torch-random"),
        ("torch-random", "torch-random", "seed="),
        ("torch-random:seed=1:world=2", "world", "torch-distributed"),
        ("torch-random:seed=1:generator=me", "generator=me", "default, loader or sampler"),
        ("torch-random:seed=1:generator=loader:stride=2", "stride", "generator=default"),
        ("sequential:seed=1", "seed", "leave seed out"),
        ("list", "list", "list:FILE"),
        ("list:", "list", "list:FILE"),
        ("list:a:files=sorted", "list", "without files="),
        ("auto:root=x", "root", "no keys"),
    ] {
        let error = text.parse::<OrderSpec>().expect_err(text).to_string();
        assert!(error.contains(part) && error.contains(remedy) && !error.contains('\n'), "{text}: {error}");
    }
}

#[derive(Deserialize, Debug)]
struct File {
    order: Vec<OrderSpec>,
}

#[test]
fn tables_say_the_same_as_texts() {
    let file: File = toml::from_str(
        "[[order]]\nkind = 'torch-distributed'\nseed = -1\nworld = 8\nrank = '0+2'\nroot = 'a,b'\ndrop_last = true\n\
         [[order]]\nkind = 'list'\nfiles = 'list:/x'\n[[order]]\nkind = 'list:/x'\n[[order]]\nkind = 'torch-distributed'\nworld = 4\nrank = 3\n",
    )
    .unwrap();
    let mut first = spec("torch-distributed:seed=-1:world=8:rank=0+2:drop_last=true");
    (first.root, first.id) = ("a,b".to_owned(), "a,b".to_owned());
    let third = spec("torch-distributed:world=4:rank=3");
    assert_eq!(file.order, [first, spec("list:/x"), spec("list:/x"), third]);
}

#[test]
fn tables_are_refused_like_texts() {
    for (table, part) in [
        ("seed = 1", "needs a kind"),
        ("kind = 'torch-distributed'\nworlds = 8", "did you mean world?"),
        ("kind = 'torch-distributed'\nworld = 8\nrank = 8", "rank 8 is not below world=8"),
        ("kind = 'torch-distributed'\nseed = 1.5", "a text, a whole number, true or false"),
    ] {
        let error = toml::from_str::<File>(&format!("[[order]]\n{table}\n")).expect_err(table).to_string();
        assert!(error.contains(part), "{table}: {error}");
    }
}

#[test]
fn orders_get_names_of_their_own() {
    let mut specs = ["sequential", "sequential:id=a-2", "sequential:id=a", "sequential", "sequential:id=a", "sequential"].map(spec);
    crate::order::spec::make_ids_distinct(&mut specs);
    assert_eq!(specs.map(|spec| spec.id), ["sequential", "a-2", "a", "sequential-2", "a-3", "sequential-3"]);
}

#[test]
fn a_sampler_is_made_or_refused_by_name() {
    assert_eq!(spec("torch-distributed:world=4:rank=0-1").sampler(10).unwrap().len(), 6);
    assert_eq!(spec("torch-random:seed=1:batch=4:drop_last=true").sampler(10).unwrap().len(), 8);
    for (text, n, part) in [
        ("auto", 10, "auto declares no order"),
        ("torch-distributed", 0, "check root= and files="),
        ("torch-distributed:world=8:drop_last=true", 7, "check world="),
        ("sequential:start=11", 10, "start=11"),
    ] {
        let error = spec(text).sampler(n).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
