use serde::Deserialize;

use super::*;
use crate::order::torch::RandomSource;

fn spec(text: &str) -> OrderSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_example_of_the_manual() {
    let spec = spec("torch-distributed:seed=0:world=8:rank=0-7:root=train:files=imagefolder:batch=256:workers=8:drop_last=false:start=0");
    assert_eq!(spec.kind, OrderKind::TorchDistributed);
    assert_eq!((spec.seed, spec.world, spec.ranks.as_slice()), (0, 8, [0, 1, 2, 3, 4, 5, 6, 7].as_slice()));
    assert_eq!((spec.root.as_str(), spec.id.as_str(), &spec.files), ("train", "train", &SampleRule::ImageFolder));
    assert_eq!((spec.batch, spec.workers, spec.tail, spec.start), (Some(256), Some(8), Tail::Pad, 0));
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
        "torch-random:seed=1:generator=stream:offset=7:between=4",
        "torch-random:seed=1:num_samples=30:replacement=true",
        "torch-random:seed=1:split=900+100:part=1",
        "torch-distributed:split=0.8+0.15+0.05:part=2:split_seed=42",
        "torch-distributed:split=0.5+0.5:part=0:split_by=listing:tail=uneven",
        "torch-subset:seed=5:indices=0-998/2:between=12",
        "torch-subset:seed=5:split=1+9:part=1:split_by=numpy-legacy:split_seed=3",
        "torchdata:seed=2:offset=9:workers=4",
        "accelerate:seed=42:world=4:rank=0+3:batch=8:split_batches=true:drop_last=true",
        "accelerate:seed=42:sampler=default:offset=5",
        "accelerate:seed=67280421310721:sampler=generator:world=2:batch=4",
        "hf-trainer",
        "accelerate:seed=1:world=2:batch=3:tail=uneven",
        "wids:world=2:batch=3:drop_last=true",
        "hf-trainer:seed=7:world=2:rank=1:batch=3",
        "lightning:seed=4:world=2:tail=uneven",
        "timm-repeat-aug:world=2:rank=1",
        "torchvision-repeat-aug:seed=1:world=2:rank=1:repeats=4:batch=16:drop_last=true",
        "numpy-legacy:seed=4294967295:again=in-place:world=2:tail=pad",
        "numpy-generator:seed=18446744073709551615:again=reseeded",
        "python-shuffle:seed=0:again=never",
        "python-sample:seed=0:k=10",
        "mosaic:shard_samples=100:algorithm=py1s:nodes=2:block=256",
        "webdataset:seed=42:buffer=10:initial=5:deterministic=true:world=2:rank=1:workers=4",
        "webdataset:seed_text=a b=c:buffer=10",
        "python-shuffle:seed_text=:again=in-place",
        "python-sample:seed_text=42:k=3",
        "wids:chunk=2000:shuffle=false:shuffle_first=true:world=2",
        "dali:world=4:rank=2:stick_to_shard=true",
        "dali:shuffle=false",
        "dali:shuffle_after_epoch=true",
        "dali:shuffle_after_epoch=true:shuffle_after_epoch_seed=-3:generator=mt19937:again=reseeded:world=2",
        "dlio:loader=files:seed_change_epoch=false:world=2",
        "grain:seed=4294967295",
    ] {
        let first = spec(text);
        assert_eq!(spec(&first.to_string()), first, "{text} -> {first}");
    }
    assert_eq!(spec("list:/data/a:b.txt").files, SampleRule::list("/data/a:b.txt"));
    assert_eq!(spec("torch-distributed:world=16:rank=8-11+15").ranks_text(), "8-11+15");
    assert_eq!(spec("torch-distributed:seed=-1").seed, u64::MAX);
    assert_eq!(spec("torch-distributed:world=3").ranks, [0, 1, 2]);
}

#[test]
fn drop_last_is_the_samplers_where_there_is_one() {
    let sampler = spec("torch-distributed:world=2:drop_last=true");
    assert_eq!((sampler.tail, sampler.drop_last_batch), (Tail::Drop, false));
    let loader = spec("wids:world=2:drop_last=true:batch=4");
    assert_eq!((loader.tail, loader.drop_last_batch), (Tail::Uneven, true), "its parts are whole");
    let loader = spec("sequential:drop_last=true:batch=4");
    assert_eq!((loader.tail, loader.drop_last_batch), (Tail::Pad, true));
}

/// Each refusal names the bad part and the remedy, in one line.
#[test]
fn bad_specifications_are_refused_by_name() {
    for (text, part, remedy) in [
        ("", "\"\"", "torch-distributed, torch-random"),
        ("torch-distribute", "\"torch-distribute\"", "did you mean torch-distributed?"),
        ("torch-randm", "\"torch-randm\"", "did you mean torch-random?"),
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
        ("torch-distributed:drop_last=True", "drop_last=True", "write drop_last=true"),
        ("webdataset:WDS_SEED=3", "\"WDS_SEED\"", "write seed_text="),
        ("webdataset:seed_text=a\nb", "seed_text=\"a\\nb\"", "control character"),
        ("dali:random_shuffle=true", "\"random_shuffle\"", "write shuffle=true"),
        ("torch-distributed:num_replicas=8", "\"num_replicas\"", "write world="),
        ("torch-distributed:split=0.8+0.2:part=5", "part=5", "0 to 1"),
        ("torch-distributed:drop_last_batch=true", "batch", "add batch=SIZE"),
        ("torch-distributed:files=globs", "\"globs\"", "imagefolder, datasetfolder@EXT, sorted"),
        ("torch-distributed:root=../x", "root=../x", "root=train"),
        ("torch-distributed:root=a//x", "root=a//x", "root=train"),
        ("torch-distributed:id=", "id=", "leave it out"),
        ("torch-distributed:generator=loader", "generator", "torch-random"),
        ("torch-random", "torch-random", "seed="),
        ("torch-random:seed=1:world=2", "world", "torch-distributed"),
        ("torch-random:seed=1:generator=me", "generator=me", "default, loader, sampler or stream"),
        ("torch-random:seed=1:generator=loader:stride=2", "stride", "generator=default"),
        ("sequential:seed=1", "seed", "leave seed out"),
        ("list", "list", "list:FILE"),
        ("list:", "list", "list:FILE"),
        ("list:a:files=sorted", "list", "without files="),
        ("auto:root=x", "root", "no keys"),
        ("torch-weighted:seed=1", "torch-weighted", "list:FILE"),
        ("tf-data", "tf-data", "list:FILE"),
        ("numpy-legacy", "numpy-legacy", "seed="),
        ("numpy-legacy:seed=4294967296", "seed=4294967296", "to 4294967295"),
        ("python-shuffle:seed=-1", "seed=-1", "from 0"),
        ("python-shuffle:seed=1:again=often", "again=often", "permutation, in-place, reseeded, never"),
        ("torch-random:seed=1:between=2", "between", "generator=stream"),
        ("torch-random:seed=1:generator=stream:stride=2", "stride", "generator=default"),
        ("torch-random:seed=1:generator=stream:num_samples=2", "num_samples", "leave them out"),
        ("torch-random:seed=1:num_samples=0", "num_samples=0", "from 1"),
        ("webdataset:seed=1:seed_text=a", "seed_text", "one of them"),
        ("webdataset:seed_text=a:deterministic=true", "seed_text", "give seed="),
        ("python-shuffle:seed_text=a:again=reseeded", "seed_text", "give seed="),
        ("numpy-legacy:seed_text=a", "seed_text", "only python-shuffle, python-sample, webdataset"),
        ("dali:seed=1", "seed", "leave seed out"),
        ("dali:generator=mt19937", "generator", "shuffle_after_epoch=true"),
        ("dali:shuffle_after_epoch=true:stick_to_shard=true", "stick_to_shard", "leave one out"),
        ("dali:shuffle_after_epoch=true:again=never", "again=never", "in-place, reseeded"),
        ("accelerate:seed=1:world=2", "whole batches", "add batch=SIZE"),
        ("accelerate:seed=1:world=3:batch=8:split_batches=true", "batch=8", "world=3"),
        ("accelerate:seed=1:offset=2", "offset", "sampler=default"),
        ("torch-randperm:seed=1:k=2", "k:", "only python-sample"),
        ("torch-distributed:split=0.8+0.1:part=0:split_seed=1", "split=0.8+0.1", "make 1"),
        ("torch-distributed:split=0.8+x:part=0:split_seed=1", "split=0.8+x", "0.9+0.1"),
        ("torch-distributed:split=0.8+0.2:part=0", "split_seed", "add split_seed="),
        ("torch-distributed:split=0.8+0.2:split_seed=1", "part=", "0 for the first"),
        ("torch-distributed:split=0.8+0.2:part=2:split_seed=1", "part=2", "0 to 1"),
        ("torch-distributed:part=1", "part", "add split="),
        ("torch-distributed:indices=9-1", "indices=9-1", "FIRST-LAST"),
        ("torch-distributed:indices=a", "indices=a", "0-899"),
        ("torch-distributed:indices=0-4:split=1+4", "indices", "one of them"),
        ("torch-distributed:tail=pad:drop_last=true", "tail=", "one of them"),
        ("mosaic", "mosaic", "shard_samples="),
        ("mosaic:shard_samples=9:algorithm=py3", "algorithm=py3", "py1e"),
        ("torchdata", "torchdata", "seed="),
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
    assert_eq!(spec("torch-random:seed=1:split=0.8+0.2:part=1").sampler(10).unwrap().len(), 2);
    assert_eq!(spec("accelerate:seed=1:world=2:batch=4:rank=1").sampler(9).unwrap().len(), 8);
    assert_eq!(spec("python-sample:seed=1:k=3").sampler(10).unwrap().len(), 3);
    for (text, n, part) in [
        ("auto", 10, "auto declares no order"),
        ("torch-distributed", 0, "check root= and files="),
        ("torch-distributed:world=8:drop_last=true", 7, "check world="),
        ("sequential:start=11", 10, "start=11"),
        ("torch-random:seed=1:split=5+6:part=0", 10, "the dataset has 10"),
        ("torch-random:seed=1:indices=0-10", 10, "beyond the 10 samples"),
        ("python-sample:seed=1:k=11", 10, "k=11"),
        ("mosaic:shard_samples=1000000000", 10, "shard_samples="),
        ("dlio:loader=files:world=3", 10, "world=3"),
        ("dali:indices=0-4", 10, "leave split and indices out"),
        ("torchvision-repeat-aug:world=2", 255, "check world="),
    ] {
        let error = spec(text).sampler(n).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn lightning_predicts_by_the_epoch_alone() {
    let order = |text: &str| spec(text).sampler(11).unwrap().order(3).places;
    assert_eq!(order("lightning:seed=7:world=2:rank=0"), order("torch-distributed:seed=7:world=2:rank=0"));
    assert_eq!(order("lightning:seed=7:world=2:rank=1:tail=uneven"), order("torch-distributed:world=2:rank=1")[..5]);
}

#[test]
fn a_kind_has_its_usual_seed_and_tail() {
    let seeds = ["hf-trainer", "dlio", "mosaic:shard_samples=1", "lightning", "wids", "dali"].map(|text| spec(text).seed);
    assert_eq!(seeds, [42, 123, 9176, 0, 0, 0]);
    assert_eq!(spec("numpy-legacy:seed=1:world=2").tail, Tail::Uneven);
    assert_eq!(spec("accelerate:seed=1:world=4:batch=8:split_batches=true").batch_of_rank(), Some(2));
    let stream = RandomSource::Stream { offset: 2, between: 2 };
    assert_eq!(spec("torch-random:seed=1:generator=stream").kind, OrderKind::TorchRandom { source: stream, count: Default::default() });
}
