# cmake -DFOLDER=... -DOUTPUT=... -P embed_files.cmake: the files of a folder as a C++ source that
# defines bevy::web_files(). As numbers, since no string literal may be as long as a script.
file(GLOB_RECURSE paths RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT paths)
set(arrays "")
set(rows "")
set(index 0)
foreach(path IN LISTS paths)
    file(READ ${FOLDER}/${path} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
    string(APPEND arrays "constexpr char kFile${index}[] = {${bytes}'\\0'};\n")
    string(APPEND rows
        "    {\"/${path}\", std::string_view(kFile${index}, sizeof kFile${index} - 1)},\n")
    math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/embed_files.cmake.
#include \"server/web_files.h\"
namespace bevy {
namespace {
${arrays}constexpr WebFile kFiles[] = {
${rows}};
}  // namespace
std::span<const WebFile> web_files() {
    return kFiles;
}
}  // namespace bevy
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
