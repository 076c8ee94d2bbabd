"""Names of calls, of many languages together, that run, remove or write. Tables alone.

Next: foreign.py (looks for them).
"""

from egress_proxy.safety.values import names

CALLS = names(
    "system exec execv execl execlp execvp execve execvpe execle execlpe exec_ spawn spawnl spawnlp spawnv "
    "spawnvp spawnve spawnle popen popen2 popen3 popen4 execSync execFileSync execFile spawnSync shell_exec "
    "passthru proc_open pcntl_exec run call check_call check_output Popen getoutput getstatusoutput execute "
    "startfile create_subprocess_shell create_subprocess_exec Command capture2 capture2e capture3 "
    "posix_spawn eval shell_output qx pipe_exec termopen jobstart fork_exec system2 shell sh execa"
)
# Their text is a program of the same language too.
EVALUATORS = names("exec eval")
LISP_CALLS = names("command process")  # shell-command, call-process
LISP_REMOVERS = names("directory")  # delete-directory
REMOVERS = names(
    "rmtree rmSync rmdirSync rm_rf rm_r remove_tree rimraf remove_dir_all remove_dir removeSync "
    "rmdir_recursive remove_entry_secure remove_entry emptyDirSync delete_tree"
)
UNLINKERS = names("unlink unlinkSync remove delete rmdir rm removedirs unlink_p safe_unlink")
WRITERS = names(
    "open write_text write_bytes writeFileSync writeFile appendFile appendFileSync createWriteStream "
    "file_put_contents write binwrite truncate truncateSync writeTextFileSync writeTextFile copyfile"
)
HOMES = names("homedir home HOME USERPROFILE")
FOLDERS = names("chdir set_current_dir")
ENVIRONMENTS = names("environ getenv ENV env")
# Their arguments are parts of one path.
COMPOSERS = names("join joinpath resolve Path PurePath catfile")
# They tell which files there are.
FINDERS = names("glob iglob listdir scandir walk readdirSync Glob")
