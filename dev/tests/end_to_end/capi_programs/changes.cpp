/* Files that are changed at an offset, and where their chunks are, in C++. */

#include <eyas.hpp>

#include <iostream>

int main()
{
    eyas::client client;
    client.edit("/file", true).write_at(3, "def").write_at(0, "abc").publish();
    client.edit("/file").write_at(1, "BC").set_size(8).publish();
    std::string content = client.open("/file").read();
    for (char &byte : content)
        byte = byte ? byte : '0';
    std::cout << content << '\n';
    for (const eyas::block_place &place : client.places("/file"))
        std::cout << place.offset << ' ' << place.size_bytes << ' ' << place.block << ' '
                  << !place.node.empty() << !place.host.empty() << '\n';
}
