-- SCALL: the values that changed; each changed column becomes a row of the audit table.
create table dbo.part_scall (id int not null primary key, name nvarchar(40) not null, price decimal(10, 2) null)
create table dbo.part_scall_audit (seq int identity primary key, id int, what nvarchar(10), value nvarchar(40))
  Go
create schema audit
go
create procedure [audit].[part update]
    @id int = null, @name nvarchar(40) = null, @price decimal(10, 2) = null, @key int, @changed varbinary(128),
    @reason nvarchar(20) = N'replication'
as
begin
    declare @bits tinyint
    set @bits = convert(tinyint, substring(@changed, 1, 1))
    if @bits & 2 = 2
        insert dbo.part_scall_audit (id, what, value) values (@key, N'name', @name)
    if @bits & 4 = 4
        insert dbo.part_scall_audit (id, what, value) values (@key, N'price', convert(nvarchar(40), @price))
    update dbo.part_scall
    set name = case when @bits & 2 = 2 then @name else name end,
        price = case when @bits & 4 = 4 then @price else price end
    where id = @key
    if @@rowcount = 0
        exec sp_MSreplraiserror 20598
end
gO
