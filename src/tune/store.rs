//! The file of tuned plans.
//!
//! A writer holds a lock (a file next to the cache, which is kept), reads and modifies the contents, writes
//! them to a new file and renames it over the old one. So readers see one version or the next, never a
//! partial one, and writers never lose each other's entries. An unreadable file is never replaced.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use super::cache::{CacheFault, PlanCache};
use super::error::{Error, Result};

/// Maximum size of a cache, bytes.
const MOST: u64 = 64 << 20;

/// Maximum length of a chain of symbolic links, as on Linux.
const MOST_LINKS: usize = 40;

/// A cache in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// The store in the user's cache folder: `cusync/tuned.json` under `XDG_CACHE_HOME`, or `~/.cache`.
    ///
    /// # Errors
    /// [`Error::NoFolder`]: the user has no home.
    pub fn usual() -> Result<Store> {
        let folders = etcetera::choose_base_strategy().map_err(|e| Error::NoFolder(e.to_string()))?;
        Ok(Store::at(folders.cache_dir().join("cusync").join("tuned.json")))
    }

    /// A store in a file that need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Store {
        Store { path: path.into() }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Contents of the file; empty if there is none.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Version`], or the file cannot be read.
    pub fn load(&self) -> Result<PlanCache> {
        // A pipe or a device has no persistent contents.
        if fs::metadata(&self.path).is_ok_and(|meta| !meta.is_file()) {
            return Err(self.fault(std::io::Error::other("it is no regular file")));
        }
        let mut bytes = Vec::new();
        let text = match File::open(&self.path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes)) {
            Ok(_) if bytes.len() as u64 > MOST => {
                return Err(self.corrupt("it has more than 64 MiB".into(), None));
            }
            Ok(_) => String::from_utf8(bytes).map_err(|e| self.corrupt(e.to_string(), None))?,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(PlanCache::default()),
            Err(e) => return Err(self.fault(e)),
        };
        PlanCache::parse(&text).map_err(|fault| match fault {
            CacheFault::Corrupt(why, place) => self.corrupt(why, place),
            CacheFault::Version(found) => Error::Version { path: self.path.clone(), found },
        })
    }

    /// Modifies the contents of the file under the writers' lock; waits for the lock.
    ///
    /// # Errors
    /// Errors of [`Store::load`], which leave the file unchanged; or the file cannot be written.
    pub fn update<T>(&self, change: impl FnOnce(&mut PlanCache) -> T) -> Result<T> {
        let target = self.target().map_err(|e| self.fault(e))?;
        fs::create_dir_all(folder_of(&target)).map_err(|e| self.fault(e))?;
        let mut beside = target.clone().into_os_string();
        beside.push(".lock");
        if fs::metadata(&beside).is_ok_and(|meta| !meta.is_file()) {
            return Err(self.fault(std::io::Error::other("the lock beside it is no regular file")));
        }
        let lock = File::options().create(true).truncate(false).write(true).open(&beside);
        let lock = lock.map_err(|e| self.fault(e))?;
        // Held until `lock` is dropped, or the process ends.
        fs4::FileExt::lock(&lock).map_err(|e| self.fault(e))?;
        let mut cache = self.load()?;
        let before = cache.clone();
        let result = change(&mut cache);
        if cache != before {
            let text = cache.text().map_err(|e| self.fault(e.into()))?;
            replace_file(&target, &text).map_err(|e| self.fault(e))?;
        }
        Ok(result)
    }

    /// Target of the path, whether it exists or not: links are preserved, and all users of one file share its
    /// lock.
    fn target(&self) -> std::io::Result<PathBuf> {
        let mut path = self.path.clone();
        for _ in 0..MOST_LINKS {
            match fs::read_link(&path) {
                Ok(link) => path = path.parent().unwrap_or(Path::new("")).join(link),
                Err(_) => return Ok(path),
            }
        }
        Err(std::io::Error::other("too many symbolic links"))
    }

    fn fault(&self, why: std::io::Error) -> Error {
        Error::File { path: self.path.clone(), why }
    }

    fn corrupt(&self, why: String, place: Option<(usize, usize)>) -> Error {
        Error::Corrupt { path: self.path.clone(), why, place }
    }
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces a file atomically by a new one in its folder, which keeps the permissions of the old one.
pub fn replace_file(target: &Path, text: &str) -> std::io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".cusync-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder_of(target))?;
    file.write_all(text.as_bytes())?;
    if let Ok(old) = target.metadata() {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(target).map(drop).map_err(|e| e.error)
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::entry;
    use super::*;

    const DAY: &str = "2026-11-21T08:00:00Z";

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let store = Store::at(folder.path().join("deep").join("tuned.json"));
        (folder, store)
    }

    #[test]
    fn a_missing_file_is_an_empty_cache_and_the_first_entry_makes_it() {
        let (_folder, store) = store();
        assert_eq!(store.load().expect("nothing to read"), PlanCache::default());
        assert!(store.update(|cache| cache.insert(entry(8, DAY, 41.0))).expect("writable"));
        let read = store.load().expect("well-formed");
        assert_eq!(read.entries().count(), 1);
        assert!(!store.update(|cache| cache.insert(entry(8, DAY, 41.0))).expect("writable"), "it is known");
        assert_eq!(store.load().expect("well-formed"), read);
        let others = fs::read_dir(store.path().parent().expect("a folder")).expect("readable").count();
        assert_eq!(others, 2, "the cache and its lock, and no temporary file");
    }

    #[test]
    fn what_cannot_be_read_is_never_replaced() {
        let (_folder, store) = store();
        fs::create_dir_all(store.path().parent().expect("a folder")).expect("writable");
        let version = r#"{ "format": "cusync tuned plans", "version": 99, "entries": [] }"#;
        for (text, word) in
            [("{ half", "not a cache"), (version, "version 99"), ("\u{0}\u{1}", "not a cache")]
        {
            fs::write(store.path(), text).expect("writable");
            for error in [store.load().err(), store.update(|cache| cache.insert(entry(8, DAY, 41.0))).err()] {
                let message = error.expect("it is refused").to_string();
                assert!(message.contains(word) && message.contains("--cache"), "{message}");
            }
            assert_eq!(fs::read_to_string(store.path()).expect("still there"), text);
        }
        fs::write(store.path(), [0xff, 0xfe]).expect("writable");
        assert!(matches!(store.load(), Err(Error::Corrupt { .. })), "not text");
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_and_what_they_lead_to_is_written() {
        use std::os::unix::fs::symlink;
        let (folder, store) = store();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(store.path().parent().expect("a folder")).expect("writable");
        // A link to a link to the file; the first is relative, and the file does not exist yet.
        symlink("second", at("first")).expect("a link");
        symlink(store.path(), at("second")).expect("a link");
        let linked = Store::at(at("first"));
        assert!(linked.update(|cache| cache.insert(entry(8, DAY, 41.0))).expect("writable"));
        assert!(linked.update(|cache| cache.insert(entry(16, DAY, 41.0))).expect("writable"));
        assert!(["first", "second"].iter().all(|link| at(link).is_symlink()));
        assert!(!store.path().is_symlink());
        assert_eq!(store.load().expect("well-formed").entries().count(), 2);
        assert_eq!(linked.load().expect("well-formed"), store.load().expect("well-formed"));
        assert!(at("deep/tuned.json.lock").exists() && !at("first.lock").exists(), "one lock for one file");
        symlink("loop", at("loop")).expect("a link");
        let endless = Store::at(at("loop")).update(|cache| cache.insert(entry(8, DAY, 41.0)));
        assert!(matches!(endless, Err(Error::File { .. })), "{endless:?}");
    }

    #[test]
    fn writers_at_once_lose_nothing_and_readers_never_see_a_half() {
        let (_folder, store) = store();
        let (writers, each) = (8u64, 6u64);
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let store = &store;
                scope.spawn(move || {
                    for i in 0..each {
                        let new = entry(1 + writer * each + i, DAY, 41.0);
                        assert!(store.update(|cache| cache.insert(new)).expect("writable"));
                        store.load().expect("always whole");
                    }
                });
            }
        });
        assert_eq!(store.load().expect("well-formed").entries().count() as u64, writers * each);
    }
}
