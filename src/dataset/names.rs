//! Texts that name the samples: lists, tables, JSON, COCO annotations. The file itself is read elsewhere; here is only its text.
//!
//! A table or a JSON text has columns (of a table: by place; of JSON: by the names of the fields on the way). The column that names
//! most files is the one; what of it names no file (a header, a file that is not there) is passed over.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::dataset::samples::SampleError;
use crate::dataset::sequence::IMAGE_EXTENSIONS;
use crate::dataset::{Manifest, Node};
use crate::types::FileIndex;

/// Columns looked at; a JSON text may have a field of its own for each sample.
const COLUMNS_MAX: usize = 64;
/// A column whose first so many texts name no file is a label's or an id's.
const MISSES_FIRST_MAX: u64 = 1000;
/// Longest text that can be a path (`PATH_MAX`).
const NAME_BYTES_MAX: usize = 4096;

/// One path a line, below the root or from the mount's top; empty lines are skipped.
pub(super) fn listed(manifest: &Manifest, root: &str, list: String, text: &str) -> Result<Vec<FileIndex>, SampleError> {
    let mut files = Vec::new();
    for (line, path) in (1..).zip(text.lines()).filter(|(_, path)| !path.is_empty()) {
        let plain = path.strip_prefix("./").unwrap_or(path);
        let below = if root.is_empty() { None } else { manifest.find(&format!("{root}/{plain}")) };
        match below.or_else(|| manifest.find(plain)) {
            Some(Node::File(file)) => files.push(file),
            _ => return Err(SampleError::NotInMount { list, line, path: path.to_owned(), root: root.to_owned() }),
        }
    }
    if files.is_empty() { Err(SampleError::ListEmpty { list }) } else { Ok(files) }
}

/// The files that a column of a text names, in order of appearance: `column`, or the one that names most. The ending of `list` says what
/// the text is.
pub(super) fn named(
    manifest: &Manifest,
    root: &str,
    list: String,
    text: &str,
    column: Option<&str>,
) -> Result<Vec<FileIndex>, SampleError> {
    let mut all = columns(manifest, root, &list, text)?;
    let place = match column {
        None => (!all.is_empty()).then_some(0),
        Some(name) => all.iter().position(|column| column.0 == name),
    };
    place.map(|place| all.swap_remove(place).1).ok_or_else(|| SampleError::NamesNothing { list, root: root.to_owned() })
}

/// All columns that name files, those first that name most: name and files.
pub(super) fn columns(manifest: &Manifest, root: &str, list: &str, text: &str) -> Result<Vec<(String, Vec<FileIndex>)>, SampleError> {
    let mut columns = Columns::new(manifest, root);
    let ending = Path::new(list).extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let read = match ending.as_str() {
        "csv" => table(&mut columns, text, b','),
        "tsv" => table(&mut columns, text, b'\t'),
        "json" => json(&mut columns, text),
        "jsonl" | "ndjson" => text.lines().filter(|line| !line.trim().is_empty()).try_for_each(|line| json(&mut columns, line)),
        _ => {
            lines(&mut columns, text);
            Ok(())
        }
    };
    match read {
        Ok(()) => Ok(columns.ranked()),
        Err(reason) => Err(SampleError::NotReadable { list: list.to_owned(), reason }),
    }
}

/// `list(sorted(coco.imgs.keys()))` of pycocotools: the images in order of their ids.
pub(super) fn coco(manifest: &Manifest, root: &str, list: String, text: &str, annotated: bool) -> Result<Vec<FileIndex>, SampleError> {
    #[derive(Deserialize)]
    struct Image {
        id: i64,
        file_name: String,
    }
    #[derive(Deserialize)]
    struct Annotation {
        image_id: i64,
    }
    #[derive(Deserialize)]
    struct Coco {
        images: Vec<Image>,
        #[serde(default)]
        annotations: Vec<Annotation>,
    }
    let mut parsed: Coco = match serde_json::from_str(text) {
        Ok(parsed) => parsed,
        Err(error) => return Err(SampleError::NotReadable { list, reason: error.to_string() }),
    };
    if annotated {
        let mut ids: Vec<i64> = parsed.annotations.iter().map(|annotation| annotation.image_id).collect();
        ids.sort_unstable();
        parsed.images.retain(|image| ids.binary_search(&image.id).is_ok());
    }
    // Stable, and the last of a repeated id counts, as in a dict.
    parsed.images.reverse();
    parsed.images.sort_by_key(|image| image.id);
    parsed.images.dedup_by_key(|image| image.id);
    let mut columns = Columns::new(manifest, root);
    for image in &parsed.images {
        columns.add("file_name", &image.file_name);
    }
    let best = columns.ranked().into_iter().next().map(|column| column.1);
    best.ok_or_else(|| SampleError::NamesNothing { list, root: root.to_owned() })
}

fn table(columns: &mut Columns<'_>, text: &str, delimiter: u8) -> Result<(), String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes());
    let mut record = csv::StringRecord::new();
    let mut names: Vec<String> = (0..COLUMNS_MAX).map(|place| place.to_string()).collect();
    let mut is_first = true;
    while reader.read_record(&mut record).map_err(|error| error.to_string())? {
        if std::mem::take(&mut is_first) && !record.iter().any(|cell| columns.is_name(cell.trim())) {
            // A header: names that are there twice stay numbers.
            for place in 0..record.len().min(COLUMNS_MAX) {
                let cell = record[place].trim();
                if !cell.is_empty() && !names.iter().any(|name| name == cell) {
                    cell.clone_into(&mut names[place]);
                }
            }
            continue;
        }
        for (name, cell) in names.iter().zip(&record) {
            columns.add(name, cell.trim());
        }
    }
    Ok(())
}

/// Fields between white space, and the whole line, which may be a name with spaces.
fn lines(columns: &mut Columns<'_>, text: &str) {
    for line in text.lines() {
        columns.add("line", line.trim());
        for (name, field) in ["0", "1", "2", "3"].into_iter().zip(line.split_ascii_whitespace()) {
            columns.add(name, field);
        }
    }
}

fn json(columns: &mut Columns<'_>, text: &str) -> Result<(), String> {
    let mut place = String::new();
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Strings { columns, place: &mut place }.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())
}

/// All strings of a JSON text in order of appearance (a map of `serde_json` would sort the fields), each with the fields on the way to it.
/// The nesting is bounded by `serde_json` (128).
struct Strings<'a, 'm> {
    columns: &'a mut Columns<'m>,
    place: &'a mut String,
}

impl<'de> DeserializeSeed<'de> for Strings<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strings<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.columns.add(self.place, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Strings { columns, place } = self;
        // All items of a list are one column: of [["a.jpg", "cat"], ...] the labels name no files and are passed over.
        while items.next_element_seed(Strings { columns, place })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let Strings { columns, place } = self;
        let length = place.len();
        while let Some(field) = fields.next_key::<String>()? {
            let dot = if length > 0 { "." } else { "" };
            place.extend([dot, "keys"]);
            columns.add(place, &field);
            place.truncate(length);
            if length + field.len() < NAME_BYTES_MAX {
                // {"a.jpg": {...}}: what is below a name of a file is one column for all of them.
                place.extend([dot, if columns.is_name(&field) { "values" } else { &field }]);
                fields.next_value_seed(Strings { columns, place })?;
                place.truncate(length);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// How a column's texts become paths: what worked last is tried first.
#[derive(Clone, Copy, Default)]
struct Way {
    /// Below the root, or from the mount's top.
    from_top: bool,
    /// Leading components left off: a path that begins with the mount point.
    skip: usize,
    /// Index in [`IMAGE_EXTENSIONS`] of what is added: ids without an ending.
    ending: Option<usize>,
}

#[derive(Default)]
struct Column {
    files: Vec<FileIndex>,
    misses: u64,
    way: Way,
}

struct Columns<'m> {
    manifest: &'m Manifest,
    root: String,
    by_name: HashMap<String, usize>,
    columns: Vec<Column>,
    /// Where a path is put together.
    path: String,
}

impl<'m> Columns<'m> {
    fn new(manifest: &'m Manifest, root: &str) -> Self {
        Self { manifest, root: root.to_owned(), by_name: HashMap::new(), columns: Vec::new(), path: String::new() }
    }

    fn add(&mut self, column: &str, text: &str) {
        let known = self.by_name.get(column).copied();
        if known.is_none() && self.columns.len() >= COLUMNS_MAX {
            return;
        }
        let at = known.unwrap_or_else(|| {
            self.by_name.insert(column.to_owned(), self.columns.len());
            self.columns.push(Column::default());
            self.columns.len() - 1
        });
        if self.columns[at].files.is_empty() && self.columns[at].misses >= MISSES_FIRST_MAX {
            return;
        }
        match self.find(text, self.columns[at].way) {
            Some((file, way)) => {
                self.columns[at].way = way;
                self.columns[at].files.push(file);
            }
            None => self.columns[at].misses += 1,
        }
    }

    /// Whether a text is a path by itself, at the first try.
    fn is_name(&mut self, text: &str) -> bool {
        text.len() <= NAME_BYTES_MAX && self.find(text, Way::default()).is_some()
    }

    fn find(&mut self, text: &str, last: Way) -> Option<(FileIndex, Way)> {
        let text = text.strip_prefix("./").unwrap_or(text);
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return None;
        }
        if let Some(file) = self.try_way(text, last) {
            return Some((file, last));
        }
        let endings = || [None].into_iter().chain((0..IMAGE_EXTENSIONS.len()).map(Some));
        for skip in 0..=text.bytes().filter(|byte| *byte == b'/').count() {
            for from_top in [false, true] {
                // Only a name without an ending can be one that an ending was left off.
                let bare = !text.rsplit('/').next().unwrap_or(text).contains('.');
                for ending in endings().take(if bare { usize::MAX } else { 1 }) {
                    let way = Way { from_top, skip, ending };
                    if let Some(file) = self.try_way(text, way) {
                        return Some((file, way));
                    }
                }
            }
        }
        None
    }

    fn try_way(&mut self, text: &str, way: Way) -> Option<FileIndex> {
        let tail = match way.skip {
            0 => text,
            skip => text.match_indices('/').nth(skip - 1).map(|(at, _)| &text[at + 1..])?,
        };
        if tail.is_empty() {
            return None;
        }
        self.path.clear();
        if !way.from_top && !self.root.is_empty() {
            self.path.push_str(&self.root);
            self.path.push('/');
        }
        self.path.push_str(tail);
        if let Some(ending) = way.ending {
            self.path.push('.');
            self.path.push_str(IMAGE_EXTENSIONS[ending]);
        }
        match self.manifest.find(&self.path) {
            Some(Node::File(file)) => Some(file),
            Some(Node::Dir(_)) | None => None,
        }
    }

    /// The columns that name files, those first that name most; of equal ones the one that came first.
    fn ranked(self) -> Vec<(String, Vec<FileIndex>)> {
        let mut names: Vec<(usize, String)> = self.by_name.into_iter().map(|(name, place)| (place, name)).collect();
        names.sort_unstable();
        let mut ranked: Vec<_> = names.into_iter().map(|(_, name)| name).zip(self.columns.into_iter().map(|column| column.files)).collect();
        ranked.retain(|(_, files)| !files.is_empty());
        ranked.sort_by_key(|(_, files)| std::cmp::Reverse(files.len()));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ObjectMeta;

    const FILES: [&str; 6] = ["t/images/b.jpg", "t/images/a.jpg", "t/images/10.jpg", "t/images/9.jpg", "t/labels.csv", "v/a b.jpg"];

    fn manifest() -> Manifest {
        let object = |path: &str| ObjectMeta { key: path.into(), size: 1, etag: "".into(), mtime_seconds: 0 };
        Manifest::build("", FILES.into_iter().map(object).collect())
    }

    #[track_caller]
    fn check(root: &str, file: &str, text: &str, expected: &[&str]) {
        let manifest = manifest();
        let files = named(&manifest, root, file.to_owned(), text, None).unwrap();
        assert_eq!(files.iter().map(|&file| manifest.path(file)).collect::<Vec<_>>(), expected, "{file}: {text}");
    }

    #[test]
    fn tables_name_files_in_one_column() {
        let two = ["t/images/b.jpg", "t/images/a.jpg"];
        check("t", "x.csv", "label,file\ncat,images/b.jpg\n\"a, cat\",images/a.jpg\ncat,images/gone.jpg\n", &two);
        check("t/images", "x.CSV", "id,label\nb,cat\na,10\n", &two);
        check("", "x.tsv", "images/b.jpg\tt/images/b.jpg\nx\tt/images/a.jpg\n", &two);
        check("", "x.csv", "/data/imagenet/t/images/b.jpg,1\n/data/imagenet/t/images/a.jpg,0\n", &two);
        check("t", "x.txt", "images/b.jpg 0\n./images/a.jpg 1\n", &two);
        check("v", "x.txt", "a b.jpg\n", &["v/a b.jpg"]);
    }

    #[test]
    fn json_names_files_in_order_of_appearance() {
        let two = ["t/images/b.jpg", "t/images/a.jpg"];
        check("t", "x.json", r#"{"z": [{"f": "images/b.jpg", "n": 1}], "z": [{"f": "images/a.jpg", "n": [2.5, null, true]}]}"#, &two);
        check("t", "x.json", r#"["images/b.jpg", "images/a.jpg"]"#, &two);
        check("t", "x.json", r#"[["images/b.jpg", "cat"], ["images/a.jpg", "dog"]]"#, &two);
        check("t", "x.json", r#"{"images/b.jpg": "cat", "images/a.jpg": {"l": "dog"}}"#, &two);
        check("t", "x.jsonl", "{\"p\": \"images/b.jpg\"}\n\n{\"q\": 1, \"p\": \"images/a.jpg\"}\n", &two);
    }

    #[test]
    fn a_column_is_chosen_by_its_name() {
        let of = |file: &str, text: &str, column: &str| -> Vec<String> {
            let manifest = manifest();
            let files = named(&manifest, "t", file.into(), text, Some(column)).unwrap_or_default();
            files.iter().map(|&file| manifest.path(file)[2..].to_owned()).collect()
        };
        let csv = "image,image,mask\nimages/a.jpg,images/b.jpg,images/9.jpg\nimages/10.jpg,,\n";
        assert_eq!(of("x.csv", csv, "image"), ["images/a.jpg", "images/10.jpg"]);
        assert_eq!((of("x.csv", csv, "1"), of("x.csv", csv, "mask")), (vec!["images/b.jpg".to_owned()], vec!["images/9.jpg".to_owned()]));
        let json = r#"{"train": [{"p": "images/a.jpg"}], "val": [{"p": "images/b.jpg"}, {"p": "images/9.jpg"}]}"#;
        assert_eq!((of("x.json", json, "train.p").len(), of("x.json", json, "val.p").len(), of("x.json", json, "p").len()), (1, 2, 0));
        assert_eq!(of("x.json", r#"{"images/a.jpg": {"m": "images/b.jpg"}}"#, "values.m"), ["images/b.jpg"]);
    }

    #[test]
    fn coco_is_in_order_of_ids() {
        let manifest = manifest();
        let text = r#"{"info": {}, "images": [{"id": 10, "file_name": "10.jpg", "width": 3}, {"id": 9, "file_name": "9.jpg"}, {"id": 1, "file_name": "b.jpg"}],
            "annotations": [{"id": 7, "image_id": 9, "segmentation": [[1.5, 2]]}, {"id": 8, "image_id": 10}]}"#;
        let paths = |annotated| -> Vec<&str> {
            coco(&manifest, "t/images", "i.json".into(), text, annotated).unwrap().iter().map(|&file| manifest.path(file)).collect()
        };
        assert_eq!(paths(false), ["t/images/b.jpg", "t/images/9.jpg", "t/images/10.jpg"]);
        assert_eq!(paths(true), ["t/images/9.jpg", "t/images/10.jpg"]);
    }

    #[test]
    fn what_names_nothing_says_so() {
        let refusal = |file: &str, text: &str| named(&manifest(), "t", file.into(), text, None).unwrap_err().to_string();
        assert!(refusal("x.csv", "a,b\n1,2\n").contains("names files"));
        assert!(refusal("x.json", "{\"a\": ").contains("x.json is not what its ending says"));
        assert!(coco(&manifest(), "t", "c.json".into(), "[]", false).unwrap_err().to_string().contains("c.json is not"));
    }

    #[test]
    fn columns_are_bounded() {
        let fields: Vec<String> = (0..10_000).map(|i| format!("\"k{i}\": \"v\"")).collect();
        let text = format!("{{{}, \"p\": \"images/b.jpg\"}}", fields.join(", "));
        let manifest = manifest();
        let mut columns = Columns::new(&manifest, "t");
        json(&mut columns, &text).unwrap();
        assert_eq!(columns.columns.len(), COLUMNS_MAX);
    }
}
